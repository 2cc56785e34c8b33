"""What `doctor` and `discover` print is readable, fits, and holds no escape sequence of a server."""

from __future__ import annotations

from swarmtui.cli.render.checks import check_line, discovered_text
from swarmtui.model.telemetry import Discovered, Trust

SERVER = Discovered(
    url="http://127.0.0.1:8000",
    engine="vLLM",
    version="0.32.0",
    models=("tiny\x1b[31m",),
    context=4096,
    seats=8,
    pid=42,
    gpus=("GPU-a",),
    flags={"max-num-seqs": "4", "data-parallel-size": "2", "enforce-eager": "true"},
)


def test_a_server_in_lines() -> None:
    assert discovered_text([SERVER]) == (
        "http://127.0.0.1:8000\n"
        "  engine   vLLM 0.32.0\n"
        "  models   tiny\n"
        "  context  4,096 tokens\n"
        "  seats    8\n"
        "  process  42\n"
        "  GPUs     GPU-a\n"
        "  flags    max-num-seqs 4, data-parallel-size 2, enforce-eager\n"
    )


def test_what_is_not_known_is_not_zero() -> None:
    text = discovered_text([Discovered(url="http://h", reachable=False, problem="no answer")])
    assert "http://h (does not answer)" in text and "seats    –" in text and "flags    not known" in text
    assert "problem  no answer" in text


def test_many_flags_are_cut_short() -> None:
    flags = {f"flag-{number}": "x" for number in range(40)}
    assert "and 28 more (--json)" in discovered_text([Discovered(url="http://h", flags=flags)]).replace(
        "\n           ", " "
    )


def test_nothing_found_says_what_to_do() -> None:
    assert "swarmtui sim" in discovered_text([])


def test_a_check_has_a_sign_a_word_and_fits() -> None:
    line = Trust(name="disk", state="wrong", value="0.0 GiB free", sentence="clear some " * 20)
    text = check_line(line, 12)
    assert text.startswith("✗ wrong     disk          0.0 GiB free\n")
    assert max(map(len, text.splitlines())) <= 100
