"""Progress of a run on stderr."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest

from swarmtui.cli.progress import (
    PlainProgress,
    Progress,
    TerminalProgress,
    describe_frame,
    open_progress,
)
from swarmtui.model.client_protocol import Frame, SessionWarning
from swarmtui.model.findings import SearchState
from swarmtui.model.session import Level, RateSummary, Spread
from swarmtui.state.session_state import SessionState


def frame(**fields: Any) -> Frame:
    made = msgspec.structs.replace(SessionState(0).frame(0, rows=False), status="running", c=4)
    return msgspec.structs.replace(made, **fields)


def level(c: int, **fields: Any) -> Level:
    """A level in which nothing but the given fields was measured."""
    made: dict[str, Any] = dict.fromkeys(Level.__struct_fields__)
    made |= {"c": c, "runs": 1, "n": 4, "ok": 4, "errors": 0, "unfinished": 0, "error_counts": {}, "cap_hits": 0}
    made |= {"degenerate": 0, "complete": True, "flags": (), "by_run": (), "token_source": "usage"}
    made |= dict.fromkeys(("per_stream_tps", "per_stream_tps_clean"), RateSummary())
    made |= dict.fromkeys(("ttft_s", "ttfo_s", "tpot_s", "icl_s", "e2e_s"), Spread(n=0))
    return Level(**(made | fields))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_shows_phase_rate_ttft_errors_and_time_left() -> None:
    shown = frame(
        run=1, runs=2, done=12, of=16, in_flight=4, waiting=1, out_tps=312.4, ttft_s=0.18, left_s=12.3, errors=0
    )  # fmt: skip
    assert describe_frame(shown) == (
        "C=4 run 1/2 [###############-----] 12/16 · 312 tok/s · first token (10 s) 180 ms · 1 of 4 waiting · "
        "0 errors · 0:12 left"
    )


def test_unknown_values_are_left_out() -> None:
    assert describe_frame(frame(status="warming up", c=0)) == "warming up · 0 errors"
    assert describe_frame(frame(done=3, of=None)) == "C=4 3 done · 0 errors"
    assert describe_frame(frame(status="paused")) == "paused C=4 · 0 errors"


def test_most_frequent_error_is_shown() -> None:
    assert "5 errors (4 reset, 1 http_503)" in describe_frame(frame(errors=5, error_counts={"http_503": 1, "reset": 4}))


def test_single_error_is_singular() -> None:
    assert "· 1 error (1 reset)" in describe_frame(frame(errors=1, error_counts={"reset": 1}))


@pytest.mark.parametrize(
    ("bound", "said"),
    [("exact", "· 0:54 left"), ("about", "· about 0:54 left"), ("at_least", "· at least 0:54 left"),
     ("at_most", "· at most 0:54 left")],
)  # fmt: skip
def test_the_time_left_says_how_it_is_meant(bound: str, said: str) -> None:
    assert describe_frame(frame(left_s=54.0, left_bound=bound)).endswith(said)


def test_stopping_run_shows_no_time_left() -> None:
    assert describe_frame(frame(status="draining", left_s=54.0)).endswith("0:54 left")
    assert "left" not in describe_frame(frame(status="stopping", left_s=54.0))


def test_a_search_shows_what_it_has_found_and_the_time_left_in_any_terminal() -> None:
    search = SearchState(goal="capacity", low=8, at_least=8, high=16, next_c=12, step="bisect")
    shown = frame(
        c=12, done=7, of=18, in_flight=12, waiting=3, out_tps=512.0, ttft_s=0.9, left_s=25.0, left_bound="about",
        search=search,
    )  # fmt: skip
    found = "C=12 [########------------] 7/18 · at least 8 · 16 missed"
    assert describe_frame(shown) == (
        f"{found} · halving the gap between 8 and 16 · 512 tok/s · first token (10 s) 900 ms · 3 of 12 waiting · "
        "0 errors · about 0:25 left"
    )
    assert describe_frame(shown, 80) == f"{found} · about 0:25 left"
    begun = msgspec.structs.replace(shown, search=SearchState(goal="cliff", low=1))
    assert "7/18 · 1 no queue · 512 tok/s" in describe_frame(begun)


@pytest.mark.parametrize(("source", "sign"), [("usage", ""), ("chunks", "~"), ("mixed", "~")])
def test_rates_from_counted_chunks_are_marked(source: str, sign: str) -> None:
    out = io.StringIO()
    done = level(1, out_tps_steady=120.0, out_tps_wall=110.0, token_source=source)
    open_progress(out, quiet=False).show(frame(levels=(done,)))
    assert f"{sign}120 tok/s steady, {sign}110 wall" in out.getvalue()
    assert ("~" in out.getvalue()) == bool(sign)


def test_bar_has_constant_length() -> None:
    for done in range(30):
        bar = re.search(r"\[(.*)\]", describe_frame(frame(done=done, of=10)))
        assert bar and len(bar.group(1)) == 20


def test_plain_progress_writes_each_phase_once_and_each_finished_level() -> None:
    out = io.StringIO()
    lines = open_progress(out, quiet=False)
    done = level(1, ok=4, out_tps_steady=120.25, out_tps_wall=110.0, ttft_s=Spread(n=4, mean=0.05, min=0.04, max=0.06))
    for shown in (frame(c=1), frame(c=1, done=2), frame(c=2, levels=(done,)), frame(c=2, levels=(done,), done=1)):
        lines.show(shown)
    lines.show(frame(c=2, status="saving", levels=(done,)))
    # At the end, the levels have figures that were not known before.
    lines.show(frame(c=2, status="ended", levels=(level(1, ok=4, streaming=1, out_tps_steady=120.25),)))
    assert out.getvalue().splitlines() == [
        "C=1 · 0 errors",
        "C=1: 4 ok, 0 errors, 120 tok/s steady, 110 wall, first token 50.0 ms",
        "C=2 · 0 errors",
    ]


def test_a_level_with_another_run_is_written_again() -> None:
    out = io.StringIO()
    lines = open_progress(out, quiet=False)
    for n in (4, 8):
        lines.show(frame(status="saving", levels=(level(1, n=n, ok=n),)))
    assert out.getvalue().splitlines() == ["C=1: 4 ok, 0 errors", "C=1: 8 ok, 0 errors"]


@pytest.mark.parametrize("kind", [PlainProgress, TerminalProgress])
def test_each_kind_of_warning_is_written_once(kind: type[PlainProgress | TerminalProgress]) -> None:
    """Also if its numbers grow, and other warnings are added."""
    out = io.StringIO()
    progress = kind(out)
    for count in (1, 2, 3):
        full = SessionWarning("not_on_disk", f"{count} entries are not on disk: /x: full")
        removed = SessionWarning("directory_removed", "its directory was removed")
        progress.show(frame(warnings=(full,) if count < 3 else (removed, full)))
    written = re.findall(r"warning: (.*)", out.getvalue())
    assert written == ["1 entries are not on disk: /x: full", "its directory was removed"]


def test_terminal_progress_rewrites_one_line_and_clears_it() -> None:
    out = Terminal()
    line = open_progress(out, quiet=False)
    line.show(frame(done=1, of=4))
    line.show(frame(done=2, of=4))
    line.write("message")
    line.show(frame(done=3, of=4))
    line.clear()
    assert "\n" not in out.getvalue().replace("message\n", "")
    assert out.getvalue().endswith("\r\x1b[2K")


def test_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    open_progress(out, quiet=False).show(frame(done=1, of=4, out_tps=1234.0, ttft_s=0.5, left_s=100.0))
    assert len(out.getvalue().removeprefix("\r\x1b[2K")) < 30


def test_quiet_progress_writes_messages_only() -> None:
    out = io.StringIO()
    quiet = open_progress(out, quiet=True)
    assert isinstance(quiet, Progress)
    quiet.show(frame())
    quiet.clear()
    quiet.write("saved: here")
    assert out.getvalue() == "saved: here\n"


@pytest.mark.parametrize("kind", [Progress, PlainProgress, TerminalProgress])
def test_escape_sequences_from_a_server_are_removed(
    kind: type[Progress | PlainProgress | TerminalProgress],
) -> None:
    out = io.StringIO()
    kind(out).write("bad\x1b[31m red\x07\nsecond line")
    assert out.getvalue() == "bad red second line\n"
