"""The text of `discover` and `doctor` fits the page and contains no escape sequences from a server."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.report.lists import check_blocks, discovery_blocks
from swarmtui.report.text import paint

SERVER = DiscoveredServer(
    url="http://127.0.0.1:8000",
    engine="vLLM",
    version="0.32.0",
    models=("tiny\x1b[31m",),
    context=4096,
    slots=8,
    pid=42,
    gpus=("GPU-a",),
    flags={"max-num-seqs": "4", "data-parallel-size": "2", "enforce-eager": "true"},
)


def discovery_text(servers: Sequence[DiscoveredServer]) -> str:
    return paint(discovery_blocks(servers))


def test_server_text() -> None:
    assert discovery_text([SERVER]) == (
        "server       http://127.0.0.1:8000\n"
        "engine       vLLM 0.32.0\n"
        "models       tiny\n"
        "context      4,096 tokens per request\n"
        "slots        8\n"
        "process      42\n"
        "gpus         GPU-a\n"
        "flags        max-num-seqs 4, data-parallel-size 2, enforce-eager\n"
    )


def test_unknown_values_are_not_zero() -> None:
    text = discovery_text([DiscoveredServer(url="http://h", reachable=False, problem="no response")])
    assert "http://h (not responding)" in text and "slots        –" in text and "flags        unknown" in text
    assert "problem      no response" in text


def test_many_flags_are_abbreviated() -> None:
    flags = {f"flag-{number}": "x" for number in range(40)}
    assert "and 28 more (--json)" in discovery_text([DiscoveredServer(url="http://h", flags=flags)]).replace(
        "\n             ", " "
    )


def test_no_server_suggests_the_simulator() -> None:
    assert "swarmtui sim" in discovery_text([])


def test_check_line_has_sign_and_state_and_fits() -> None:
    line = QualityLine(code="disk", name="disk", state="wrong", value="0.0 GiB free", sentence="clear some " * 20)
    text = paint(check_blocks(line))
    assert text.startswith("✗ wrong: disk: 0.0 GiB free\n    clear some")
    assert max(map(len, text.splitlines())) <= 100
