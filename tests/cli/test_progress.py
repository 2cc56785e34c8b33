"""What people see on stderr while a run goes on."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest

from swarmtui.cli.progress import Line, Lines, Silent, clock, describe, milliseconds, progress_on
from swarmtui.model.client_protocol import Frame
from swarmtui.model.session import Level, Rates, Spread
from swarmtui.session_process.live_state import Board


def frame(**fields: Any) -> Frame:
    made = msgspec.structs.replace(Board(0).frame(False), status="running", c=4)
    return msgspec.structs.replace(made, **fields)


def level(c: int, **fields: Any) -> Level:
    """A level in which nothing was measured, but for the fields given."""
    made: dict[str, Any] = dict.fromkeys(Level.__struct_fields__)
    made |= {"c": c, "runs": 1, "n": 4, "ok": 4, "errors": 0, "cancelled": 0, "error_counts": {}, "cap_hits": 0}
    made |= {"degenerate": 0, "complete": True, "flags": (), "by_run": (), "token_source": "usage"}
    made |= dict.fromkeys(("per_stream_tps", "per_stream_tps_clean"), Rates())
    made |= dict.fromkeys(("ttft_s", "ttfo_s", "tpot_s", "icl_s", "e2e_s"), Spread(n=0))
    return Level(**(made | fields))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_phase_c_rate_ttft_errors_and_time_left() -> None:
    shown = frame(
        run=1, runs=2, done=12, of=16, in_flight=4, waiting=1, out_tps=312.4, ttft_s=0.18, left_s=12.3, errors=0
    )  # fmt: skip
    assert describe(shown) == (
        "C=4 run 1/2 [###############-----] 12/16 · 312 tok/s · TTFT 180 ms · 1 of 4 waiting · 0 errors · 0:12 left"
    )


def test_what_is_not_known_is_not_shown() -> None:
    assert describe(frame(status="warming up", c=0)) == "warming up · 0 errors"
    assert describe(frame(done=3, of=None)) == "C=4 3 done · 0 errors"
    assert describe(frame(status="paused")) == "paused C=4 · 0 errors"


def test_the_most_frequent_error_is_named() -> None:
    assert "5 errors (reset)" in describe(frame(errors=5, error_counts={"http_503": 1, "reset": 4}))


def test_one_error_is_one() -> None:
    assert "· 1 error (reset)" in describe(frame(errors=1, error_counts={"reset": 1}))


def test_a_run_that_stops_does_not_wait_for_the_rest_of_its_plan() -> None:
    assert describe(frame(status="draining", left_s=54.0)).endswith("0:54 left")
    assert "left" not in describe(frame(status="stopping", left_s=54.0))


@pytest.mark.parametrize(("source", "sign"), [("usage", ""), ("chunks", "~"), ("mixed", "~")])
def test_rates_by_counted_chunks_are_marked(source: str, sign: str) -> None:
    out = io.StringIO()
    done = level(1, out_tps_steady=120.0, out_tps_wall=110.0, token_source=source)
    progress_on(out, quiet=False).show(frame(levels=(done,)))
    assert f"{sign}120.0 tok/s steady, {sign}110.0 wall" in out.getvalue()
    assert ("~" in out.getvalue()) == bool(sign)


def test_a_bar_is_never_longer_than_itself() -> None:
    for done in range(30):
        bar = re.search(r"\[(.*)\]", describe(frame(done=done, of=10)))
        assert bar and len(bar.group(1)) == 20


def test_without_a_terminal_a_phase_is_told_once_and_a_level_when_it_is_done() -> None:
    out = io.StringIO()
    lines = progress_on(out, quiet=False)
    done = level(1, ok=4, out_tps_steady=120.25, out_tps_wall=110.0, ttft_s=Spread(n=4, mean=0.05))
    for shown in (frame(c=1), frame(c=1, done=2), frame(c=2, levels=(done,)), frame(c=2, levels=(done,), done=1)):
        lines.show(shown)
    lines.show(frame(c=2, status="saving", levels=(done,)))
    assert out.getvalue().splitlines() == [
        "C=1 · 0 errors",
        "C=1: 4 ok, 0 errors, 120.2 tok/s steady, 110.0 wall, TTFT 50 ms",
        "C=2 · 0 errors",
    ]


@pytest.mark.parametrize("kind", [Lines, Line])
def test_each_warning_is_said_once(kind: type[Lines | Line]) -> None:
    """Though its numbers grow, and others come."""
    out = io.StringIO()
    progress = kind(out)
    for count in (1, 2, 3):
        full = f"{count} entries are not on disk: /x: full"
        progress.show(frame(warnings=(full,) if count < 3 else ("the server went away", full)))
    said = re.findall(r"warning: (.*)", out.getvalue())
    assert said == ["1 entries are not on disk: /x: full", "the server went away"]


def test_on_a_terminal_one_line_renews_itself_and_leaves_nothing() -> None:
    out = Terminal()
    line = progress_on(out, quiet=False)
    line.show(frame(done=1, of=4))
    line.show(frame(done=2, of=4))
    line.say("said")
    line.show(frame(done=3, of=4))
    line.clear()
    assert "\n" not in out.getvalue().replace("said\n", "")
    assert out.getvalue().endswith("\r\x1b[2K")


def test_a_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    progress_on(out, quiet=False).show(frame(done=1, of=4, out_tps=1234.0, ttft_s=0.5, left_s=100.0))
    assert len(out.getvalue().removeprefix("\r\x1b[2K")) < 30


def test_quiet_is_quiet_but_for_what_must_be_said() -> None:
    out = io.StringIO()
    silent = progress_on(out, quiet=True)
    assert isinstance(silent, Silent)
    silent.show(frame())
    silent.clear()
    silent.say("saved: here")
    assert out.getvalue() == "saved: here\n"


@pytest.mark.parametrize("kind", [Silent, Lines, Line])
def test_text_from_a_server_is_never_an_escape_sequence(kind: type[Silent | Lines | Line]) -> None:
    out = io.StringIO()
    kind(out).say("bad\x1b[31m red\x07\nsecond line")
    assert out.getvalue() == "bad red second line\n"


def test_short_and_long_times() -> None:
    assert [milliseconds(s) for s in (0.25, 9.9, 12.34)] == ["250 ms", "9900 ms", "12.3 s"]
    assert [milliseconds(s) for s in (0.00042, 0.0094, 0.0096)] == ["0.42 ms", "9.4 ms", "10 ms"]
    assert [clock(s) for s in (0.4, 59.6, 3599.4, 3661.0)] == ["0:00", "1:00", "59:59", "1:01:01"]
