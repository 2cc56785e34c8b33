"""Messages of a session become events: each level, verdict and warning once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swarmtui.cli.events import EventWriter
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.client_protocol import Frame, Hello, SessionMessage, SessionWarning
from swarmtui.model.events import AnswerEvent, LevelEvent, RunEvent, SessionEvent, VerdictEvent, WarningEvent
from swarmtui.model.findings import Goodput, SearchedLevel, SearchState
from swarmtui.model.telemetry import QualityLine
from swarmtui.state.session_state import SessionState
from tests.analysis.level_builders import level, session, summary


def frame(**fields: Any) -> Frame:
    return msgspec.structs.replace(SessionState(0).frame(0, rows=False), **fields)


def observed(*messages: SessionMessage) -> list[RunEvent]:
    written: list[RunEvent] = []
    writer = EventWriter(written.append)
    for message in messages:
        writer.observe(message)
    return written


def line(state: Any, code: str = "client_cpu") -> QualityLine:
    return QualityLine(name="client CPU", state=state, value="1", sentence=f"{code} is {state}", code=code)


def searched(state: Any, n: int = 16) -> SearchState:
    return SearchState(goal="capacity", levels=(SearchedLevel(c=4, visits=1, n=n, good=n - 1, state=state),))


def test_session_is_named_first_without_secrets() -> None:
    (event,) = observed(Hello(session(), "/saved/here"))
    assert isinstance(event, SessionEvent)
    assert (event.endpoints, event.model, event.directory) == (("http://127.0.0.1:8000",), "qwen3", "/saved/here")


def test_level_is_told_again_only_after_another_run() -> None:
    one = level(1, tps=50.0, n=5)
    found = observed(
        frame(levels=(one,)), frame(levels=(one,)), frame(levels=(one, level(2, tps=90.0))),
        frame(levels=(level(1, tps=51.0, n=10),)),
    )  # fmt: skip
    levels = [event for event in found if isinstance(event, LevelEvent)]
    assert [(event.c, event.n, event.out_tps_steady) for event in levels] == [
        (1, 5, 50.0),
        (2, 16, 90.0),
        (1, 10, 51.0),
    ]
    assert found == levels


def test_verdict_of_a_search_is_told_when_it_changes() -> None:
    states = ("unsure", "missed", "missed", "kept", "dip")
    found = observed(*(frame(slo="ttft_p90=2s", search=searched(state)) for state in states))
    assert [(event.word, event.c) for event in found if isinstance(event, VerdictEvent)] == [
        ("missed", 4), ("kept", 4), ("dip", 4)
    ]  # fmt: skip
    assert isinstance(found[0], VerdictEvent) and found[0].sentence == "C=4: 15 of 16 requests met the SLO: missed"


def test_search_for_the_cliff_has_no_verdict_on_an_slo() -> None:
    search = msgspec.structs.replace(searched("missed"), goal="cliff")
    assert observed(frame(slo="ttft_p90=2s", search=search)) == []


def test_warnings_are_told_once_for_each_code() -> None:
    full = SessionWarning("not_on_disk", "1 entry is not on disk")
    fuller = SessionWarning("not_on_disk", "2 entries are not on disk")
    found = observed(
        frame(warnings=(full,), quality=(line("note"),)),
        frame(warnings=(fuller,), quality=(line("doubtful"), line("ok", "c_held"))),
        frame(quality=(line("doubtful"),)),
    )
    assert [(event.source, event.code) for event in found if isinstance(event, WarningEvent)] == [
        ("session", "not_on_disk"), ("quality", "client_cpu")
    ]  # fmt: skip
    assert len(found) == 2


@pytest.mark.parametrize("seen", [True, False])
def test_summary_adds_what_no_frame_had_and_the_answer(seen: bool) -> None:
    found: list[RunEvent] = []
    writer = EventWriter(found.append)
    one = level(1, tps=50.0)
    if seen:
        writer.observe(frame(levels=(one,), quality=(line("doubtful"),)))
    found.clear()
    good = Goodput(c=1, n=16, good=9, share=0.5, per_s=1.0, out_tps=1.0, kept=None)
    answer = Answer(headline=AnswerSentence(code="best", sentence="x"), limit=AnswerSentence(code="y", sentence="z"))
    whole = msgspec.structs.replace(
        summary([one]), goodput=(good,), answer=answer, quality=(line("doubtful"), line("ok", "c_held"))
    )
    writer.finish(whole)
    assert [type(event) for event in found] == [
        *([] if seen else [WarningEvent, LevelEvent]),
        VerdictEvent,
        AnswerEvent,
    ]
    verdict, told = found[-2:]
    assert isinstance(verdict, VerdictEvent) and (verdict.about, verdict.word, verdict.c) == ("slo", "unsure", 1)
    assert isinstance(told, AnswerEvent) and told.quality == (line("doubtful"),)


def test_next_session_of_a_tune_begins_anew() -> None:
    one = level(1, tps=50.0)
    found = observed(Hello(session(), ""), frame(levels=(one,)), Hello(session(), ""), frame(levels=(one,)))
    assert [type(event) for event in found] == [SessionEvent, LevelEvent] * 2
