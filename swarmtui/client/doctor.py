"""Check whether this machine is ready to measure: each check is ok, doubtful or wrong, and says what to do."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.analysis.machine.host import host_use
from swarmtui.analysis.quality.doubts import find_doubts, judge_host
from swarmtui.client.catalogue import inspect_server
from swarmtui.engines.registry import engine_named
from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.config import EndpointConfig
from swarmtui.model.endpoint import hide_urls, parse_address
from swarmtui.model.redaction import Secrets
from swarmtui.model.telemetry import QualityLine
from swarmtui.numbers import gib, short
from swarmtui.processes.selftest import TYPICAL_TPS, SelfTestFailed, measure_client_speed
from swarmtui.processes.spawn import SPARE_FILES
from swarmtui.telemetry.discovery import discover
from swarmtui.telemetry.gpu.readers import read_gpus
from swarmtui.telemetry.host import HostReader
from swarmtui.text import count_noun

_TIMEOUT_S = 5.0
_ENOUGH_BYTES, _MIN_BYTES = 1 << 30, 50 << 20
_LOCAL_MS, _FAR_MS = 5.0, 50.0
_ROUND_TRIPS = 5
_HOST_S = 1.0


class DoctorFinding(NamedTuple):
    """The result of a check, and a sentence that says what to do."""

    state: Literal["ok", "doubtful", "wrong"]
    value: str
    sentence: str


def run_checks(
    endpoint: EndpointConfig | None, streams: int, directory: Path, gpu_metrics_urls: tuple[str, ...] = ()
) -> Iterator[QualityLine]:
    """Check for `streams` concurrent streams; sessions are to be saved in `directory`."""
    size = shutil.get_terminal_size() if sys.stdout.isatty() else None
    checks: dict[tuple[str, str], Callable[[], DoctorFinding]] = {
        ("terminal", "terminal"): lambda: check_terminal(os.environ, size),
        ("colours", "colours"): lambda: check_colours(os.environ),
        ("open_files", "open files"): lambda: check_open_files(streams),
        ("gpu", "GPU"): lambda: check_gpus(gpu_metrics_urls),
        ("endpoint", "endpoint"): lambda: check_endpoint(endpoint) if endpoint else check_local_endpoints(),
        ("host", "host CPU"): check_host,
        ("disk", "disk"): lambda: check_disk(directory),
        ("client_speed", "client speed"): lambda: check_client_speed(streams),
    }
    for (code, name), check in checks.items():
        yield QualityLine(code=code, name=name, **check()._asdict())


def check_terminal(environ: Mapping[str, str], size: os.terminal_size | None) -> DoctorFinding:
    """`size` is None if the output is not a terminal."""
    name = environ.get("TERM", "")
    if size is None:
        return DoctorFinding("ok", "none", "the output is not a terminal: all commands without the app work")
    value = f"{name or 'TERM is not set'}, {size.columns}×{size.lines}"
    if name in ("", "dumb"):
        return DoctorFinding("wrong", value, "set TERM, for example to xterm-256color")
    if size.columns < 80 or size.lines < 24:
        return DoctorFinding("doubtful", value, "make it 80×24 or larger")
    locale = next((environ[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(key)), "")
    if "utf" not in locale.lower():
        value = f"{value}, {locale or 'no LANG'}"
        return DoctorFinding("doubtful", value, "set LANG to a UTF-8 locale, e.g. C.UTF-8")
    return DoctorFinding("ok", value, "good")


def check_colours(environ: Mapping[str, str]) -> DoctorFinding:
    if environ.get("NO_COLOR"):
        return DoctorFinding("ok", "off", "NO_COLOR is set; text and symbols carry all information")
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return DoctorFinding("ok", "16 million", "good")
    if "256" in environ.get("TERM", ""):
        return DoctorFinding("ok", "256", "good; SSH does not pass on COLORTERM")
    return DoctorFinding("ok", "16", "works; for more set TERM=xterm-256color, if the terminal supports it")


def check_open_files(streams: int) -> DoctorFinding:
    """Check that each stream can be an open file; workers raise their soft limit to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    value = f"{soft:,}, hard limit {limit}"
    if hard == resource.RLIM_INFINITY or hard >= streams + SPARE_FILES:
        return DoctorFinding("ok", value, f"enough for C = {streams:,}")
    sentence = f"too few for C = {streams:,}: raise the hard limit (ulimit -Hn, or limits.conf)"
    return DoctorFinding("wrong", value, sentence)


def check_gpus(metrics_urls: tuple[str, ...] = ()) -> DoctorFinding:
    found, problem = read_gpus(metrics_urls)
    if not found:
        return DoctorFinding("doubtful", "none", f"{problem}; everything else works")
    names = sorted({gpu.name for gpu in found if not gpu.part_of})
    value = f"{sum(not gpu.part_of for gpu in found)} × {', '.join(names)}"
    if problem:
        return DoctorFinding("doubtful", value, problem)
    if any(gpu.energy_j is None for gpu in found if not gpu.part_of):
        return DoctorFinding("doubtful", value, "no energy counter: J/token is not measured")
    return DoctorFinding("ok", value, "memory, power and energy can be read")


def check_endpoint(endpoint: EndpointConfig) -> DoctorFinding:
    (url,), secrets = hide_urls((endpoint.url,), Secrets())
    root = parse_address(url).root
    found = inspect_server(endpoint, _TIMEOUT_S)
    if not found.reachable or (found.problem and not found.models):
        return DoctorFinding("wrong", root, found.problem)
    round_trip_ms = _round_trip_ms(root, endpoint, secrets)
    server = " ".join(filter(None, (found.engine, found.version, ", ".join(found.models[:2]))))
    if round_trip_ms is None:
        return DoctorFinding("wrong", root, f"{server}: it stopped answering")
    value = f"{root}, round trip {short(round_trip_ms, 2)} ms"
    if round_trip_ms > _FAR_MS:
        sentence = f"{server}; every TTFT includes this round trip: measure from a nearer machine, or when it is idle"
        return DoctorFinding("doubtful", value, sentence)
    network = "" if round_trip_ms <= _LOCAL_MS else "every TTFT includes this round trip"
    sentence = "; ".join(filter(None, (server, engine_named(found.engine).metrics_limits, network)))
    return DoctorFinding("ok", value, sentence)


def check_local_endpoints() -> DoctorFinding:
    found = [server for server in discover() if server.reachable]
    value = ", ".join(server.url for server in found) or "none"
    sentence = "found on this host; check one with --endpoint" if found else "none found here; name one with --endpoint"
    return DoctorFinding("ok", value, sentence)


def check_disk(directory: Path) -> DoctorFinding:
    """Check the nearest existing parent if the session directory does not exist yet."""
    try:
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return DoctorFinding("wrong", str(directory), f"cannot be read: {error.strerror}")
    value = f"{gib(free)} GiB free at {directory}"
    if not os.access(existing, os.W_OK | os.X_OK):
        sentence = "sessions cannot be written there; choose another directory with --session-dir"
        return DoctorFinding("wrong", value, sentence)
    if free < _MIN_BYTES:
        return DoctorFinding("wrong", value, "not enough space for a session; free some")
    enough = free >= _ENOUGH_BYTES
    sentence = "enough" if enough else "little: 100,000 requests take about 0.3 GiB"
    return DoctorFinding("ok" if enough else "doubtful", value, sentence)


def check_host() -> DoctorFinding:
    """Check for a second how long tasks wait for a CPU, and for which programs, before anything of ours is busy."""
    reader = HostReader(servers=())
    before = reader.read()
    time.sleep(_HOST_S)
    lines = judge_host(host_use(before, reader.read(all_processes=True)))
    if not lines:
        return DoctorFinding("ok", "not known", "this system does not report how long tasks wait for a CPU")
    load = f"load {os.getloadavg()[0]:.1f} on {count_noun(os.cpu_count() or 1, 'core')}"
    value = ", ".join([*(line.value for line in lines), load])
    if doubts := find_doubts(lines):
        advice = "stop other programs, or measure when it is idle"
        return DoctorFinding("doubtful", value, f"{' and '.join(doubts)}: {advice}")
    return DoctorFinding("ok", value, lines[0].sentence)


def check_client_speed(streams: int) -> DoctorFinding:
    """Run a real worker for a second, and extrapolate."""
    try:
        found = measure_client_speed()
    except SelfTestFailed as error:
        return DoctorFinding("wrong", "not measured", f"the self-test failed: {error}")
    value = f"{found.streams:,} streams × {TYPICAL_TPS:g} tok/s ({found.token_us:.0f} µs per token)"
    if found.streams >= streams:
        return DoctorFinding("ok", value, f"this machine is fast enough for C = {streams:,}")
    sentence = f"too slow for C = {streams:,}: stop other programs, or use a machine with more cores"
    return DoctorFinding("doubtful", value, sentence)


def _round_trip_ms(root: str, endpoint: EndpointConfig, secrets: Secrets) -> float | None:
    """Return the shortest of a few round trips on an open connection."""
    best = None
    with HttpClient((), secrets, ca_file=endpoint.ca_file, insecure=endpoint.insecure) as client:
        for _ in range(_ROUND_TRIPS):
            started = time.perf_counter()
            try:
                client.get(f"{root}/v1/models", _TIMEOUT_S)
            except RequestFailed:
                return None
            taken = 1e3 * (time.perf_counter() - started)
            best = taken if best is None else min(best, taken)
    return best
