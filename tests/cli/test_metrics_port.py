"""`run --metrics-port` serves the live figures while a run goes on, on this host only."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from swarmtui.cli.metrics_server import parse_metrics_address
from swarmtui.model.base import BadInput
from tests.cli.programs import Program, Sandbox, wait_until
from tests.cli.scripted_server import scripted_server


def metrics_url(program: Program) -> str:
    found = wait_until(lambda: re.search(r"^metrics: (\S+)$", program.stderr_so_far(), re.MULTILINE), "the URL")
    return str(found[1])


def scrape(url: str) -> dict[str, Metric]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


def sample(families: dict[str, Metric], name: str) -> float:
    found = [one.value for family in families.values() for one in family.samples if one.name == name]
    return float(found[0]) if found else 0.0


def test_figures_are_served_while_a_run_goes_on(sandbox: Sandbox) -> None:
    load = ("--levels", "2", "--duration", "10m", "--max-tokens", "16", "--warmup", "none")
    program = sandbox.start_benchmark("sim:moe-tp1?speed=4", *load, "--metrics-port", "0")
    try:
        url = metrics_url(program)
        assert url.startswith("http://127.0.0.1:")
        first = wait_until(
            lambda: (
                (found := scrape(url))
                and sample(found, "swarmtui_requests_total") >= 3
                and sample(found, "swarmtui_gpu_power_watts") > 0
                and found
            ),
            "three requests, and a reading of the simulated GPU",
        )
        assert sample(first, "swarmtui_concurrency") == 2
        assert sample(first, "swarmtui_ttft_seconds_count") >= 3 and sample(first, "swarmtui_output_tokens_total") > 0
        assert first["swarmtui_session_info"].samples[0].labels["simulated"] == "true"
        later = wait_until(
            lambda: (
                (found := scrape(url))
                and sample(found, "swarmtui_requests_total") > sample(first, "swarmtui_requests_total")
                and found
            ),
            "more requests",
        )
        for name in ("swarmtui_output_tokens_total", "swarmtui_prompt_tokens_total", "swarmtui_ttft_seconds_sum"):
            assert sample(later, name) > sample(first, name)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scrape(url.replace("/metrics", "/"))
    finally:
        program.signal_group(2)
        ran = program.wait()
    assert ran.code == 4, ran
    with pytest.raises(urllib.error.URLError):
        scrape(url)


def test_a_reader_that_says_nothing_does_not_stop_a_run(sandbox: Sandbox) -> None:
    program = sandbox.start_benchmark(
        "sim:moe-tp1?speed=20", "--levels", "1,2", "--max-tokens", "8", "--metrics-port", "0"
    )
    host, port = metrics_url(program).removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))) as silent, socket.create_connection((host, int(port))) as rude:
        rude.sendall(b"\x00\xff nonsense\r\n\r\n")
        ran = program.wait()
        silent.close()
    assert ran.code == 0 and "Traceback" not in ran.err, ran


def test_a_port_in_use_is_refused_before_the_run(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        ran = sandbox.run_benchmark("sim:moe-tp1", "--metrics-port", port)
    assert f"--metrics-port: cannot listen on 127.0.0.1:{port}: " in ran.error_line(2)
    assert not sandbox.sessions.exists() or not list(sandbox.sessions.iterdir())


@pytest.mark.parametrize(
    ("text", "address"),
    [("9100", ("127.0.0.1", 9100)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:9100", ("::1", 9100))],
)
def test_address_is_local_unless_a_host_is_given(text: str, address: tuple[str, int]) -> None:
    assert parse_metrics_address(text) == address


@pytest.mark.parametrize("text", ["", "x", ":9100", "70000", "1.2", "-1", "host:", "999999999999"])
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="neither a port nor HOST:PORT"):
        parse_metrics_address(text)


def test_nothing_private_is_served(sandbox: Sandbox) -> None:
    private = (
        "--label",
        "canary-label",
        "--note",
        "canary-note",
        "--tag",
        "who=canary-tag",
        "--header",
        "X-T=canary-h",
    )
    load = ("--levels", "1", "--duration", "10m", "--warmup", "none", "--metrics-port", "0")
    with scripted_server() as server:
        program = sandbox.start_benchmark(f"{server.url}/token/canary-path/v1?user=canary-user", *private, *load)
        try:
            url = metrics_url(program)
            wait_until(lambda: sample(scrape(url), "swarmtui_requests_total") >= 1, "a request")
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
        finally:
            program.signal_group(2)
            program.wait()
    assert "swarmtui_session_info" in text and "canary" not in text and "http" not in text
