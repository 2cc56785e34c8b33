"""After the end, the result takes the place of the streams: what was found, the levels, and the keys that continue."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep
from swarmtui.model.client_protocol import Ended, Frame, Hello
from swarmtui.model.findings import Finding, SearchedLevel, SearchState, Slots
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import Level
from swarmtui.model.telemetry import Program, QualityLine
from swarmtui.report.answer import answer_number
from swarmtui.report.card import large_answer
from swarmtui.report.session_list import answer_text
from swarmtui.report.table import Code
from swarmtui.sessions.index import SessionRow
from swarmtui.sessions.replay import open_replay
from swarmtui.sessions.store import write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.baseline import compared_text
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.lines import longest_fit
from swarmtui.tui.live.curve import curve_view
from swarmtui.tui.live.header import ending_text, header_view
from swarmtui.tui.live.levels import levels_view, shown_rows
from swarmtui.tui.live.result import ResultPanel, ResultRow, large_lines, result_lines, result_view
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live.streams import StreamsPanel
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.sessions.compare_screen import CompareScreen
from tests.analysis.level_builders import level, summary
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text, text_of

RECORDED = Path(__file__).parent / "recorded"


ANSWER = Answer(
    headline=AnswerSentence(code="capacity", sentence="18 agents (17–19) with a first token within 2 s (80 % sure)"),
    agents=18,
    low=17,
    high=19,
    slo="ttft_p90=2s",
    confidence=0.8,
    best_c=18,
    at_capacity=AnswerPoint(c=18, ttft_s=0.4, ttft_p90_s=1.6, per_stream_tps=36.0, out_tps=573.0),
    limit=AnswerSentence(code="slots", sentence="at 20 agents the first token took 2.4 s (p90): all slots are taken"),
    next=(NextStep(code="slots", sentence="more slots: about 30 agents", command="vllm serve m --max-num-seqs 32"),),
)
LEVELS = tuple(
    level(c, tps=tps, ttft=ttft, queued=max(0.0, c - 2.0))
    for c, tps, ttft in ((1, 80.0, 0.1), (2, 150.0, 0.1), (4, 152.0, 0.9))
)


def ended_frame(answer: Answer | None = ANSWER, levels: tuple[Level, ...] = LEVELS) -> Frame:
    return msgspec.structs.replace(frame(4), status="ended", levels=levels, answer=answer)


def result_text(
    shown: Frame | None, ended: Ended | None, comparison: str = "", *, width: int = 79, height: int = 24
) -> str:
    levels = levels_view(shown.levels if shown else ())
    view = result_view(shown, ended, levels, comparison)
    return text_of(result_lines(view, width, height, with_levels=True))


def test_result_answers_first_then_says_why_what_to_try_and_how_sure_it_is() -> None:
    lines = result_text(ended_frame(), Ended("done", "", "/saved"), "C=4: 25.6 % faster (24.9 to 26.3)").splitlines()
    assert [line[1:7] for line in lines[:3]] == [" ┓ ┏━┓", " ┃ ┣━┫", "╺┻╸┗━┛"] and lines[2][7:14] == " agents"
    text = " ".join(" ".join(lines).split())
    said = (
        "18 agents (17–19), 80 % sure", "Compared C=4: 25.6 % faster", "At 18 573 tok/s, 36.0 each writing",
        "Why no more at 20 agents",
        "Try next more slots: about 30 agents", "vllm serve m --max-num-seqs 32", "▼4",
    )  # fmt: skip
    places = [text.find(part) for part in said]
    assert -1 not in places and places == sorted(places), list(zip(said, places, strict=True))


SIZES = [(80, 24), (100, 30), (120, 40), (160, 45), (200, 60)]


@pytest.mark.parametrize("size", SIZES)
async def test_the_whole_result_is_seen_at_once_above_the_others(size: tuple[int, int]) -> None:
    slo = "a first token within 2 s and 20 tok/s each, for 90 % of requests (80 % sure)"
    why = "at 20 agents the first token took 2.4 s (p90): all 16 slots are taken; the KV cache has room (31 % used)"
    then = "--max-num-seqs 32: 20 to 30 agents, as fewer requests wait for a slot (prediction)"
    answer = msgspec.structs.replace(
        ANSWER,
        headline=AnswerSentence(code="capacity", sentence=f"18 agents (17–19) with {slo}"),
        limit=AnswerSentence(code="slots", sentence=why),
        next=(NextStep(code="slots", sentence=then, command="--max-num-seqs 32"),),
    )
    source = RecordingSource(LiveModel())
    for message in (hello(), ended_frame(answer), Ended("done", "", "/nowhere")):
        source.live.apply(message)
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.comparison.text = "--max-num-seqs 8 → 16: ▲ 18 agents instead of 9, and 25.6 % faster (24.9 to 26.3)"
        screen.update_panels()
        await pilot.pause()
        result = screen.query_one(ResultPanel)
        others = [panel for panel in screen.panels if panel.display and panel is not result]
        assert others and all(panel.region.y >= result.region.bottom for panel in others)
        assert len(result.lines) == result.region.height - 2, "no line is blank, and none has to be scrolled to"
        shown = " ".join(re.sub("[┃│]", " ", screen_text(app)).split())
        said = ["● quality ok", "18 agents (17–19)", "Why no more", "(31 % used)", "Try next"]
        assert all(part in shown for part in [*said, "(prediction)", "(24.9 to 26.3)"]), screen_text(app)
        assert ("At 18 573 tok/s" in shown) == (size[0] <= 100), "a wide terminal has the figures in a panel"
        assert "█" in shown or size == (80, 24)
        assert ("[1] curve" in shown) == (size != (80, 24))
        await pilot.press("2")
        await pilot.pause()
        assert "[2] agents" in screen_text(app) and "[1] curve" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "[2] agents" not in screen_text(app) and "Why no more" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_how_many_why_no_more_and_what_to_try_need_no_key(size: tuple[int, int]) -> None:
    """Also with the longest sentences: those of a busy host, and of slots that share the same throughput."""
    slo = "a first token within 2 s and 20 tok/s each, for 90 % of requests"
    seen = "at 12 agents the first token took 2.43 s (p90), and all 8 slots are taken; the KV cache has room"
    then = "--parallel 16: 16 to 20 agents, each writes about 51 tok/s"
    price = "instead of 104"
    answer = msgspec.structs.replace(
        ANSWER,
        headline=AnswerSentence(code="capacity_or_more", sentence=f"10 agents (8 or more) with {slo}"),
        agents=10,
        low=8,
        high=None,
        limit=AnswerSentence(code="slots", sentence=f"not known; seen: {seen}"),
        next=(
            NextStep(code="quiet_host", sentence="measure again when the host is quiet"),
            NextStep(code="more_slots", sentence=f"{then} {price}", command="--parallel 16"),
        ),
        quality="doubtful",
        doubts="the host was busy",
        disturbed="the host was busy",
    )
    source = RecordingSource(LiveModel())
    for message in (hello(), ended_frame(answer), Ended("done", "", "/nowhere")):
        source.live.apply(message)
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        shown = " ".join(re.sub("[┃│]", " ", screen_text(app)).split())
        for end in ("10 agents (8 or more)", "KV cache has room", "then --parallel 16"):
            assert end in shown, (end, screen_text(app))
        assert ("for 90 % of requests" in shown) == (size != (80, 24)), "there the header has the SLO"


async def test_a_narrow_result_leaves_out_what_the_levels_and_panel_6_say() -> None:
    """The p90 of few requests is not known: their count is in the table of levels."""
    busy = QualityLine(
        code="host_pressure", name="host CPU", value="46 %", state="doubtful", sentence="",
        programs=(Program(name="bash serve.sh", cores=0.6, pid=28481),),
    )  # fmt: skip
    at = AnswerPoint(c=18, ttft_s=1.5, ttft_limit_s=2.0, ttft_good=17, ttft_n=17, per_stream_tps=36.0, out_tps=573.0)
    said = "the host was busy with another program: bash serve.sh (pid 28481, 0.6 cores)"
    answer = msgspec.structs.replace(ANSWER, at_capacity=at, quality="doubtful", doubts=said, disturbed=said)
    shown = msgspec.structs.replace(ended_frame(answer), quality=(busy,))
    narrow, wide = (" ".join(result_text(shown, None, width=width).split()) for width in (78, 118))
    assert said in wide and "573 tok/s" not in wide, "these figures have a panel of their own"
    assert "the host was busy with bash serve.sh" in narrow and "(0.6 cores)" in narrow and "pid" not in narrow
    assert "573 tok/s, 36.0 each writing; median first token 1.50 s Why" in narrow


@pytest.mark.parametrize("size", SIZES)
async def test_a_repeated_run_says_first_whether_the_change_helped(size: tuple[int, int]) -> None:
    slo = "a first token within 2 s and at least 20 tok/s each, for 90 % of requests (80 % sure)"
    why = "at 21 agents the first token took 2.4 s (p90): all 8 slots are taken; the KV cache has room (31 % used)"
    then = "--parallel 16: 22 to 30 agents, as fewer requests wait for a slot; each writes 20 tok/s (prediction)"
    answer = msgspec.structs.replace(
        ANSWER,
        headline=AnswerSentence(code="capacity", sentence=f"20 agents, perhaps up to 21, with {slo}"),
        agents=20,
        low=20,
        high=21,
        limit=AnswerSentence(code="slots", sentence=why),
        next=(NextStep(code="more_slots", sentence=then, command="--parallel 16"),),
    )
    first = hello()
    again = msgspec.structs.replace(first, session=msgspec.structs.replace(first.session, previous="1", repeats=True))
    source = RecordingSource(LiveModel())
    for message in (again, ended_frame(answer), Ended("done", "", "/nowhere")):
        source.live.apply(message)
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.comparison.text = (
            "--parallel 4 → 8 since 13:58: ▲ more agents: 15 → 20 (20–21); neither is where a repeat "
            "of the other would end"
        )
        screen.update_panels()
        await pilot.pause()
        shown = " ".join(re.sub("[┃│]", " ", screen_text(app)).split())
        said = (
            "20 agents, perhaps up to 21,",
            "Compared --parallel 4 → 8",
            *(["At 18 573 tok/s"] if size[0] <= 100 else []),
            "Why no more",
            "Try next",
            "(prediction)",
        )
        places = [shown.find(part) for part in said]
        assert -1 not in places and places == sorted(places), screen_text(app)


def test_a_search_for_the_capacity_has_no_other_result_before_its_end() -> None:
    unsure = SearchedLevel(c=4, visits=1, n=9, good=8, state="unsure")
    search = SearchState(goal="capacity", step="bisect", low=2, at_least=1, high=4, next_c=2, levels=(unsure,))
    shown = msgspec.structs.replace(ended_frame(None), status="running", search=search, search_result="the cliff is 8")
    text = result_text(shown, None)
    assert "so far the SLO is kept with at least 1 agent and missed with 4 (not sure yet)" in text
    assert "cliff is" not in text and "sweet spot" not in text


def test_the_best_of_several_levels_is_large_without_an_slo() -> None:
    best = msgspec.structs.replace(ANSWER, agents=None, low=None, high=None, best_c=2)
    assert "┗━╸ best" in result_text(ended_frame(best), None)
    alone = result_text(ended_frame(best, LEVELS[:1]), None)
    assert " best\n" not in alone and "18 agents (17–19) with" in alone


def test_remarks_are_grouped_by_kind_with_a_count() -> None:
    flag = Finding(code="coalesced_chunks", text="40 % of chunks were coalesced")
    failed = Finding(code="errors", text="1 of 8 requests failed: 1 http_500")
    flagged = tuple(msgspec.structs.replace(one, flags=(flag,)) for one in LEVELS)
    flagged = (*flagged[:2], msgspec.structs.replace(flagged[2], flags=(flag, failed)))
    text = result_text(ended_frame(levels=flagged), None)
    assert "some tokens arrived together in 3 levels · requests failed at C=4; press 4 for more" in " ".join(
        text.split()
    )
    assert "40 % of chunks" not in text
    assert result_text(ended_frame(levels=flagged), None, height=9).rstrip().endswith("press 4 for the levels")


@pytest.mark.parametrize(
    ("quality", "errors", "code"),
    [("ok", 0, "detail"), ("note", 0, "detail"), ("doubtful", 0, "note"), ("ok", 1, "note")],
)
def test_remarks_that_do_not_matter_for_the_answer_are_dim(
    quality: Literal["ok", "note", "doubtful"], errors: int, code: Code
) -> None:
    flag = Finding(code="degenerate", text="4 of 8 answers were empty")
    levels = [msgspec.structs.replace(one, flags=(flag,), errors=errors) for one in LEVELS]
    view = levels_view(levels, answer=msgspec.structs.replace(ANSWER, quality=quality, border=""))
    assert {one.code for one in (*view.remarks, *view.by_kind, view.grouped)} == {code}
    assert view.grouped.text == "some answers were empty or made no sense in 3 levels"


def test_a_single_level_whose_remarks_have_no_room_names_the_key_for_these() -> None:
    flag = Finding(code="coalesced_chunks", text="40 % of chunks were coalesced")
    shown = ended_frame(levels=(msgspec.structs.replace(LEVELS[0], flags=(flag,)),))
    texts = [result_text(shown, None, height=height) for height in range(6, 30)]
    assert any("press 4 for the remarks" in text for text in texts)
    assert not any("1 levels" in text for text in texts)


def many_levels(marked: int) -> tuple[Frame, tuple[Level, ...]]:
    levels = tuple(level(c, tps=10.0 * c) for c in range(1, 21))
    answer = msgspec.structs.replace(ANSWER, agents=marked, high=marked, missed_c=marked + 1)
    return ended_frame(answer, levels), levels


def test_on_a_small_screen_the_levels_next_to_the_answer_come_first() -> None:
    shown, levels = many_levels(11)
    table = levels_view(levels, answer=shown.answer)
    view = result_view(shown, Ended("done", "", "/saved"), table, "")
    text = text_of(result_lines(view, 79, 19, with_levels=True))
    assert len(text.splitlines()) == 18 and "press 4 for more of the 20 levels" in text
    assert all(sign in text for sign in ("  10 ", " ▸11 ", " ▼12 ", "  13 ")) and "\n    1 " not in text
    whole = text_of(result_lines(view, 79, 40, with_levels=True))
    assert "press 4" not in whole and "At 18" in whole and "  20 " in whole


@pytest.mark.parametrize("room", range(1, 8))
def test_no_line_below_the_sentences_is_blank_while_levels_have_no_region(room: int) -> None:
    shown, levels = many_levels(11)
    view = result_view(shown, Ended("done", "", "/saved"), levels_view(levels, answer=shown.answer), "")
    sentences = len(result_lines(view, 79, 40, with_levels=False))
    lines = text_of(result_lines(view, 79, 1 + sentences + room, with_levels=True)).splitlines()[sentences:]
    text = "\n".join(lines)
    assert len(lines) == room
    if room == 1:
        assert text.strip() == "press 4 for the levels"
        return
    assert " ▸11 " in text and (" ▼12 " in text) == (room > 2)
    assert ("press 4" in text) == (room > 3)


def test_rows_with_a_baseline_come_next_to_the_answer_and_the_first_miss() -> None:
    levels = [level(c, tps=10.0 * c) for c in (1, 2, 4, 8, 16, 20, 24, 26, 28, 32)]
    before = [level(c, tps=9.0 * c) for c in (1, 2, 4, 8, 16, 32)]
    pair = compare_pair(summary(before), summary(levels))
    answer = msgspec.structs.replace(ANSWER, agents=26, high=27, missed_c=28)
    view = levels_view(levels, pair, answer=answer)
    rows = [levels[at].c for at in shown_rows(view, 4)]
    assert rows == [24, 26, 28, 32]
    shown = result_view(ended_frame(answer, tuple(levels)), Ended("done", "", "/saved"), view, "")
    above = len(result_lines(shown, 79, 40, with_levels=False))
    lines = text_of(result_lines(shown, 79, 1 + above + 4, with_levels=True)).splitlines()[above + 1 :]
    assert [line.split()[0] for line in lines] == ["▸26", "▼28", "32"], "no line is for the key of the others"
    alone = levels_view(levels, answer=answer)
    assert [levels[at].c for at in shown_rows(alone, 4)] == [24, 26, 28, 32]


def test_columns_that_no_shown_row_fills_give_way() -> None:
    """Those of the baseline, where it has none of the rows; after the end, also others without any value."""
    levels = [level(c, tps=10.0 * c) for c in (4, 8, 9)]
    pair = compare_pair(summary([level(4, tps=36.0)]), summary(levels))

    def titles(rows: Sequence[int], answer: Answer | None) -> set[str]:
        return {column.title for column in levels_view(levels, pair, answer=answer).table_for(rows, 120).columns}

    assert {"baseline", "change"} <= titles([0, 1], None) & titles([0, 1], ANSWER)
    assert not {"baseline", "change"} & (titles([1, 2], None) | titles([1, 2], ANSWER))
    assert "±" in titles([1, 2], None) and not {"±", "TTFT"} & titles([1, 2], ANSWER)


@pytest.mark.parametrize(
    ("agents", "low", "high", "shown"),
    [
        (34, 16, 35, "16–35"), (34, 26, 35, "34"), (34, 25, 40, "25–40"), (3, 2, 3, "3"), (4, 1, 4, "1–4"),
        (34, 0, 35, "34?"), (34, 16, None, "34"), (34, 34, None, "34+"),
    ],
)  # fmt: skip
def test_a_wide_range_is_drawn_instead_of_a_number_that_would_look_certain(
    agents: int, low: int, high: int | None, shown: str
) -> None:
    answer = msgspec.structs.replace(ANSWER, agents=agents, low=low, high=high)
    assert answer_number(answer) == large_answer(answer).number == shown
    assert result_view(ended_frame(answer), None, levels_view(()), "").number == shown
    row = SessionRow(
        id="a", agents=agents, agents_open=answer.is_open, agents_range=answer.wide_range, doubtful=answer.is_doubtful
    )
    alone = f"? {shown[:-1]}" if shown.endswith("?") else shown
    assert answer_text(row) == f"{alone} agents", "in a list, the sign is in front"


def test_numbers_that_are_only_a_bound_are_drawn_as_one() -> None:
    for code, drawn in (("fewer_agents", "<"), ("capacity_at_least", "┗━┛+ agents"), ("capacity", "┗━┛ agents")):
        low, high = (18, None) if code == "capacity_at_least" else (17, 19)
        said = AnswerSentence(code=code, sentence="so many agents")
        assert drawn in result_text(
            ended_frame(msgspec.structs.replace(ANSWER, headline=said, low=low, high=high)), None
        ), code


def test_a_doubtful_number_has_the_colour_and_the_sign_of_doubt() -> None:
    said = AnswerSentence(code="capacity_or_more", sentence="18 agents or more (the host was busy)")
    doubted = msgspec.structs.replace(ANSWER, quality="doubtful", doubts="the host was busy")
    busy = msgspec.structs.replace(doubted, headline=said, low=18, high=None, disturbed="the host was busy")
    seen = [result_view(ended_frame(answer), None, levels_view(()), "") for answer in (ANSWER, doubted, busy)]
    assert [(view.number, view.style) for view in seen] == [("18", "good"), ("18?", "warn"), ("18+", "warn")]
    drawn = large_lines("18+", "agents", (), 79, "warn")
    assert all(line[0][1] == "warn" for line in drawn)


def test_a_long_path_is_shortened_to_the_name_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/a-user")
    for directory, said in (
        ("/home/a-user/s/1", "saved: /home/a-user/s/1"),
        (f"/home/a-user/{'s' * 58}/20261115", f"saved: ~/{'s' * 58}/20261115"),
        (f"/{'s' * 80}/20261115-030328-7ec6", "saved: 20261115-030328-7ec6"),
    ):
        view = header_view(hello().session, ended_frame(), Ended("done", "", directory), None)
        assert longest_fit(view.detail, 76) == said


def test_a_doubt_is_said_once_in_a_line_of_its_own() -> None:
    doubtful = msgspec.structs.replace(
        ANSWER, quality="doubtful", doubts="the host was busy", disturbed="the host was busy", high=None, missed_c=20
    )
    view = result_view(ended_frame(doubtful), None, levels_view(()), "")
    assert view.quality == "? not sure (press 6)" and view.quality_style == "warn"
    assert ResultRow("Doubt", "the host was busy, so missed levels are not sure") in view.rows
    assert result_text(ended_frame(doubtful), None).count("busy") == 1
    assert header_view(hello().session, ended_frame(doubtful), None, None).quality == ()


def test_the_comparison_names_the_change_and_does_not_repeat_a_doubt() -> None:
    before, after = (
        msgspec.structs.replace(
            summary(LEVELS, name), answer=msgspec.structs.replace(ANSWER, agents=agents, low=agents, high=agents)
        )
        for name, agents in (("20261115-000001-aaaa", 8), ("20261115-000002-bbbb", 18))
    )
    pair = compare_pair(before, after)
    said, since = "more agents: 8 → 18", f"(no known change since the run of {pair.since})"
    assert pair.since and compared_text(pair, "") == f"▲ {said}, 80 % sure {since}"
    assert pair.agents is not None
    doubted = msgspec.structs.replace(pair, doubts=("the host was busy",))
    assert compared_text(doubted, "", doubtful=True) == f"? not sure yet: 8 → 18 {since}"
    text = result_text(ended_frame(ANSWER), None, width=79, comparison=compared_text(pair, ""))
    assert text.index("18 agents") < text.index("Compared") < text.index("At 18") < text.index("Try next")


def test_a_long_command_is_broken_rather_than_cut() -> None:
    command = f"swarmtui capacity 'sim:moe-tp1?{'&'.join(f'option{n}={n}' for n in range(12))}'"
    drawn = text_of(large_lines("3", "best", [ResultRow("Try next", "ask", command=command)], 78)).splitlines()
    assert max(map(len, drawn)) < 78
    assert all(f"option{n}={n}" in "".join(line[14:].strip() for line in drawn) for n in range(12))


def test_the_key_that_runs_again_stands_for_its_command() -> None:
    """One line says what to do next, with the key; the shell has the command instead."""
    said = "repeat this run (about 60 s)"
    step = NextStep(code="repeat_run", sentence=said, command="swarmtui quick http://127.0.0.1:8000")
    view = result_view(ended_frame(), None, levels_view(LEVELS), "", steps=(step,))
    (row,) = [row for row in view.rows if row.name == "Try next"]
    assert (row.text, row.command) == (f"R: {said}", "")


FLAG = NextStep(code="more_slots", sentence="--parallel 4: more agents start at once", command="--parallel 4")


async def test_after_a_flag_to_try_the_result_says_how_to_measure_it_unless_it_is_of_a_simulator() -> None:
    def shown(step: NextStep, url: str = "http://127.0.0.1:8000", embedded: bool = False) -> LiveModel:
        live, said = LiveModel(), hello()
        endpoint = msgspec.structs.replace(said.session.endpoints[0], url=url, embedded=embedded)
        live.apply(Hello(msgspec.structs.replace(said.session, endpoints=(endpoint,)), "/nowhere"))
        live.apply(ended_frame(msgspec.structs.replace(ANSWER, next=(step,))))
        live.apply(Ended("done", "", "/nowhere"))
        return live

    search = NextStep(code="longer_search", sentence="a longer search", command="swarmtui capacity")
    restart = "restart with it, then press R"
    for live, says in (
        (shown(FLAG), True), (shown(FLAG, embedded=True), False), (shown(FLAG, url=""), False), (shown(search), False),
    ):  # fmt: skip
        app = SwarmApp(source=RecordingSource(live))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            text = " ".join(re.sub("[┃│]", " ", screen_text(app)).split())
            assert "Try next" in text and (restart in text) == says


def test_a_busy_host_does_not_hide_what_the_figures_point_to() -> None:
    again = NextStep(code="quiet_host", sentence="measure again when the host is quiet", command="")
    busy = msgspec.structs.replace(ANSWER, next=(again, *ANSWER.next))
    text = " ".join(result_text(ended_frame(busy), None).split())
    assert "measure again when the host is quiet; then vllm serve m --max-num-seqs 32" in text


def test_slots_that_the_server_reports_replace_inferred_ones() -> None:
    """Without an answer, as in the journal of a session that was not saved completely."""
    seen = msgspec.structs.replace(ended_frame(None), slots=Slots(per_replica=3))
    assert "sweet spot C=2; queue forms at C=4;" in result_text(seen, None)
    assert curve_view(LEVELS, (), "", slots=seen.slots).notes[0] == "▸ best 2 · ▼ cliff 4"


def test_the_curve_has_the_interval_of_each_level() -> None:
    sure = (level(1, tps=80.0, out_tps_steady_hw=2.0), level(2, tps=150.0), level(4, tps=152.0, out_tps_steady_hw=9.0))
    assert curve_view(sure, (), "").charts[0].series[0].half_widths == (2.0, 0.0, 9.0)


def test_result_of_a_failed_run_says_why_it_ended() -> None:
    text = result_text(None, Ended("unusable", "nothing answers at :8000", ""), height=12)
    assert "unusable: nothing answers at :8000" in text
    assert "no request of a level has finished" in text


def test_the_ending_is_said_once() -> None:
    assert ending_text(Ended("stopped", "stopped before the first request", "")) == "stopped before the first request"
    assert ending_text(Ended("failed", "the disk is full", "")) == "failed: the disk is full"


def test_progress_after_a_stop_counts_the_levels_of_the_plan() -> None:
    session = msgspec.structs.replace(hello().session, plan=Plan(goal="sweep", load=Closed(levels=(1, 2, 4, 8))))
    levels = (level(1), level(2, complete=False), level(3))
    seen = msgspec.structs.replace(frame(2), status="ended", done=8, of=8, levels=levels)
    view = header_view(session, seen, Ended("stopped", "", "/saved"), None)
    assert (view.progress, view.share) == ("1 of 4 levels", 0.25)


async def test_end_of_a_replay_shows_the_result_and_compares_it(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    first, second = sorted(directory.name for directory in root.iterdir())
    write_summary(root / first)
    source = ReplaySource(open_replay(root, second), hz=4.0)
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        source.playing = False
        streams = app.screen.query_one(StreamsPanel)
        source.seek(9.0)
        await pilot.press("2")
        await until(lambda: streams.is_on_screen and "space play" in screen_text(app))
        await pilot.press("c")
        source.seek(1_000.0)
        # The agents give way to the result, although they were chosen.
        await until(lambda: not streams.is_on_screen and "Why no more" in screen_text(app))
        await until(lambda: re.search(r"baseline +change", screen_text(app)) is not None)
        await pilot.press("enter")
        await until(lambda: "press 2 for the agents" in screen_text(app))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen))
        await pilot.press("escape", "2")
        await until(lambda: streams.is_on_screen)
        source.seek(9.0)
        await until(lambda: "agents · 4" in screen_text(app))


async def test_labels_in_the_footer_follow_the_state() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(200, 50)) as pilot:
        assert "p pause" in screen_text(app) and "space freeze" in screen_text(app)
        await pilot.press("space")
        await pilot.pause()
        assert "space unfreeze" in screen_text(app)
        source.live.apply(msgspec.structs.replace(frame(4), status="paused"))
        await pilot.press("space")
        await pilot.pause()
        assert "p resume" in screen_text(app) and "space freeze" in screen_text(app)


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("--parallel 8", "y copy --parallel 8 "),
        ("slots=8", "y copy slots=8 "),
        ("swarmtui capacity http://h", "y copy what to try "),
    ],
)
async def test_the_footer_says_what_is_copied_and_offers_no_comparison_without_a_baseline(
    command: str, label: str
) -> None:
    step = NextStep(code="more_slots", sentence="more slots", command=command)
    source = RecordingSource()
    source.live.apply(ended_frame(msgspec.structs.replace(ANSWER, next=(step,))))
    source.live.apply(Ended("done", "", ""))
    app = SwarmApp(source=source)
    async with app.run_test(size=(200, 50)):
        last = screen_text(app).splitlines()[-1]
        assert label in last and "c compare" not in last


def test_after_a_change_that_is_not_proved_no_flag_is_offered_to_copy() -> None:
    flag = NextStep(code="more_slots", sentence="more slots", command="--parallel 8")
    repeat = NextStep(code="repeat_change", sentence="be sure of --parallel 2 → 4 first")
    live = LiveModel()
    live.apply(ended_frame(msgspec.structs.replace(ANSWER, next=(flag,))))
    pair = compare_pair(summary([level(4, tps=36.0)]), summary([level(4, tps=37.0)]))
    assert live.next_command(None) == live.next_command(msgspec.structs.replace(pair, next=())) == "--parallel 8"
    assert live.next_command(msgspec.structs.replace(pair, next=(repeat, flag))) == "--parallel 8"
    assert live.next_command(msgspec.structs.replace(pair, next=(repeat,))) == ""
