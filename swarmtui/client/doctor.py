"""Is this machine fit to measure? Each line ok, doubtful or wrong, with what to do."""

from __future__ import annotations

import os
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import httpx2

from swarmtui.client.selftest import USUAL_RATE, SelfTestFailed, measure_client_speed
from swarmtui.engines.registry import engine_named
from swarmtui.model.endpoint import parse_address
from swarmtui.model.telemetry import QualityLine
from swarmtui.numbers import gib
from swarmtui.telemetry.discovery import discover
from swarmtui.telemetry.fingerprint import fingerprint
from swarmtui.telemetry.gpu.readers import open_gpus

_SPARE_FILES = 64
_TIMEOUT_S = 5.0
_ENOUGH_BYTES, _LEAST_BYTES = 1 << 30, 50 << 20
_LOCAL_MS, _FAR_MS = 5.0, 50.0


def check_terminal(environ: Mapping[str, str], size: os.terminal_size | None) -> QualityLine:
    """`size` is null where the output is no terminal."""
    name = environ.get("TERM", "")
    if size is None:
        return QualityLine(
            name="terminal", state="ok", value="none", sentence="output goes elsewhere: headless commands work"
        )
    value = f"{name or 'TERM is not set'}, {size.columns}×{size.lines}"
    if name in ("", "dumb"):
        return QualityLine(
            name="terminal", state="wrong", value=value, sentence="set TERM, for example to xterm-256color"
        )
    if size.columns < 80 or size.lines < 24:
        return QualityLine(name="terminal", state="doubtful", value=value, sentence="make it 80×24 or larger")
    locale = next((environ[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(key)), "")
    if "utf" not in locale.lower():
        value = f"{value}, {locale or 'no LANG'}"
        return QualityLine(
            name="terminal", state="doubtful", value=value, sentence="set LANG to a UTF-8 locale, e.g. C.UTF-8"
        )
    return QualityLine(name="terminal", state="ok", value=value, sentence="good")


def check_colours(environ: Mapping[str, str]) -> QualityLine:
    name = environ.get("TERM", "")
    if environ.get("NO_COLOR"):
        return QualityLine(
            name="colours", state="ok", value="off", sentence="NO_COLOR is set; words and signs say everything"
        )
    if environ.get("COLORTERM") in ("truecolor", "24bit"):
        return QualityLine(name="colours", state="ok", value="16 million", sentence="good")
    if "256" in name:
        return QualityLine(name="colours", state="ok", value="256", sentence="good; SSH does not hand on COLORTERM")
    sentence = "works; for more set TERM=xterm-256color, where the terminal can do it"
    return QualityLine(name="colours", state="ok", value="16", sentence=sentence)


def check_open_files(streams: int) -> QualityLine:
    """Each stream is an open file; the worker raises the soft limit by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    value = f"{soft:,}, at most {most}"
    if hard == resource.RLIM_INFINITY or hard >= streams + _SPARE_FILES:
        return QualityLine(name="open files", state="ok", value=value, sentence=f"enough for C = {streams:,}")
    sentence = f"too few for C = {streams:,}: raise the hard limit (ulimit -Hn, or limits.conf)"
    return QualityLine(name="open files", state="wrong", value=value, sentence=sentence)


def check_gpus() -> QualityLine:
    source = open_gpus()
    try:
        found = source.read()
    finally:
        source.close()
    if not found:
        return QualityLine(
            name="GPU", state="doubtful", value="none", sentence=f"{source.problem}; everything else works"
        )
    names = sorted({gpu.name for gpu in found if not gpu.part_of})
    value = f"{sum(not gpu.part_of for gpu in found)} × {', '.join(names)}"
    if source.problem:
        return QualityLine(name="GPU", state="doubtful", value=value, sentence=source.problem)
    if any(gpu.energy_j is None for gpu in found if not gpu.part_of):
        return QualityLine(name="GPU", state="doubtful", value=value, sentence="no energy counter: no joules per token")
    return QualityLine(name="GPU", state="ok", value=value, sentence="memory, power and energy can be read")


def check_endpoint(url: str) -> QualityLine:
    root = parse_address(url).root
    found = fingerprint(root, timeout_s=_TIMEOUT_S)
    if found is None:
        sentence = "no server of models answers there: is it up, are host and port right?"
        return QualityLine(name="endpoint", state="wrong", value=root, sentence=sentence)
    if not found.reachable or (found.problem and not found.models):
        return QualityLine(name="endpoint", state="wrong", value=root, sentence=found.problem)
    trip_ms = _round_trip_ms(root)
    who = " ".join(filter(None, (found.engine, found.version, ", ".join(found.models[:2]))))
    if trip_ms is None:
        return QualityLine(name="endpoint", state="wrong", value=root, sentence=f"{who}: it stopped answering")
    value = f"{root}, {trip_ms:.2g} ms there and back"
    if trip_ms > _FAR_MS:
        sentence = f"{who}; so long a way is in every TTFT: measure from a machine nearer to it, or when it is idle"
        return QualityLine(name="endpoint", state="doubtful", value=value, sentence=sentence)
    network = "" if trip_ms <= _LOCAL_MS else "every TTFT includes this round trip"
    sentence = "; ".join(filter(None, (who, engine_named(found.engine).metrics_limits, network)))
    return QualityLine(name="endpoint", state="ok", value=value, sentence=sentence)


def check_local_endpoints() -> QualityLine:
    """Where none was named: what discovery finds."""
    found = [server for server in discover() if server.reachable]
    value = ", ".join(server.url for server in found) or "none"
    sentence = "found on this host; check one with --endpoint" if found else "none found here; name one with --endpoint"
    return QualityLine(name="endpoint", state="ok", value=value, sentence=sentence)


def check_disk(directory: Path) -> QualityLine:
    """The nearest folder that is there already, for a session directory that is still to be made."""
    try:
        there = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(there).free
    except OSError as error:
        return QualityLine(
            name="disk", state="wrong", value=str(directory), sentence=f"cannot be read: {error.strerror}"
        )
    value = f"{gib(free)} GiB free at {directory}"
    if not os.access(there, os.W_OK | os.X_OK):
        sentence = "sessions cannot be written there; choose another place with --session-dir"
        return QualityLine(name="disk", state="wrong", value=value, sentence=sentence)
    if free < _LEAST_BYTES:
        return QualityLine(name="disk", state="wrong", value=value, sentence="no room for a session; clear some")
    roomy = free >= _ENOUGH_BYTES
    sentence = "enough" if roomy else "little: 100,000 requests take about 0.3 GiB"
    return QualityLine(name="disk", state="ok" if roomy else "doubtful", value=value, sentence=sentence)


def check_client_speed(streams: int) -> QualityLine:
    """A second of real work by a real worker, and what follows from it."""
    try:
        found = measure_client_speed()
    except SelfTestFailed as error:
        return QualityLine(
            name="client speed", state="wrong", value="not measured", sentence=f"the self-test failed: {error}"
        )
    value = f"{found.streams:,} streams × {USUAL_RATE:g} tok/s ({found.event_us:.0f} µs a token)"
    if found.streams >= streams:
        return QualityLine(
            name="client speed", state="ok", value=value, sentence=f"this machine can follow C = {streams:,}"
        )
    sentence = f"less than C = {streams:,} needs: close what else runs here, or take a machine with more cores"
    return QualityLine(name="client speed", state="doubtful", value=value, sentence=sentence)


def _round_trip_ms(root: str) -> float | None:
    """The best of a few on an open connection: what the network and the server's front take."""
    best = None
    with httpx2.Client(trust_env=False, verify=False, timeout=_TIMEOUT_S) as client:
        for _ in range(5):
            begun = time.perf_counter()
            try:
                client.get(f"{root}/v1/models")
            except httpx2.HTTPError:
                return None
            taken = 1e3 * (time.perf_counter() - begun)
            best = taken if best is None else min(best, taken)
    return best
