"""The line of the plan: levels of a search with their state, the bracket, and gauges of the SLO, at every width."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.capacity.words import first_token_texts, outlook_texts, step_texts, with_outlook
from swarmtui.analysis.limits.slo import DEFAULT_SLO, SloTally, parse_slo
from swarmtui.cli.progress import describe_frame
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.client_protocol import Ended, FirstTokens, Frame
from swarmtui.model.findings import Goodput, KvCliff, SearchedLevel, SearchState, SearchStep
from swarmtui.model.session import Session
from swarmtui.model.telemetry import QualityLine
from swarmtui.tui.live.curve import curve_view
from swarmtui.tui.live.header import header_view, status_line
from swarmtui.tui.live.levels import level_now, levels_view
from swarmtui.tui.live.machine import machine_view
from swarmtui.tui.live.plan_line import plan_line, plan_view
from swarmtui.tui.live_model import LiveModel
from tests.analysis.level_builders import level
from tests.tui.frame_builders import frame, hello, live_data

SEARCH = SearchState(
    goal="capacity",
    low=8,
    at_least=8,
    high=16,
    visits=6,
    next_c=12,
    step="bisect",
    levels=(
        SearchedLevel(c=1, visits=1, n=6, good=6, state="unsure"),
        SearchedLevel(c=2, visits=1, n=6, good=6, state="kept"),
        SearchedLevel(c=4, visits=1, n=9, good=7, state="dip"),
        SearchedLevel(c=8, visits=1, n=44, good=44, state="kept"),
        SearchedLevel(c=16, visits=2, n=30, good=3, state="missed"),
    ),
)


def session() -> Session:
    return hello().session


def searching(good: tuple[int, int] = (4, 4), n: int = 4) -> Frame:
    tally = SloTally(parse_slo(DEFAULT_SLO))
    tally.add_counts(12, [(one, n) for one in good])
    return msgspec.structs.replace(frame(12), search=SEARCH, slo=DEFAULT_SLO, slo_kept=tally.conditions())


def text(shown: Frame, width: int) -> str:
    return "".join(part for part, _ in plan_line(plan_view(session(), shown), width))


def words(shown: Frame, width: int) -> str:
    return " ".join(text(shown, width).split())


def test_a_search_shows_its_levels_the_bracket_and_whether_the_running_one_keeps_the_slo() -> None:
    assert words(searching(), 140) == (
        "how many agents? 1 ✓? 2 ✓ 4 ! 8 ✓ 12 ████░░░░ 16 ✖ ✓ first token ≤ 2 s · ✓ ≥ 20 tok/s"
    )


def test_a_level_that_keeps_the_slo_with_few_requests_is_open_only_while_the_search_runs() -> None:
    """One agent met it in all of few requests: no doubt, as long as a higher level can show it."""
    levels = tuple(level(c, tps=40.0 * c) for c in (1, 2, 4, 8, 16))
    ended = msgspec.structs.replace(SEARCH, next_c=None)
    cells = [
        next(cell.text for cell in levels_view(levels, search=search).table.rows[0] if " of " in cell.text)
        for search in (SEARCH, ended)
    ]
    assert [cell.split()[0] for cell in cells] == ["✓?", "?"]
    late = msgspec.structs.replace(SEARCH.levels[0], good=0, room=None)
    missing = msgspec.structs.replace(SEARCH, levels=(late, *SEARCH.levels[1:]))
    assert missing.shown_state(late) == "unsure", "0 of 6 is not likely kept"
    marks = [levels_view(levels, search=search).marks[0] for search in (SEARCH, ended)]
    assert ["? not sure: too few requests" in text for text in marks] == [False, True]


def test_a_level_that_is_close_to_a_limit_has_a_sign_of_its_own() -> None:
    """31 of 31 kept it, and it is not the answer: that is no lack of requests."""
    near = SearchedLevel(c=10, visits=1, n=31, good=31, state="unsure", room=0.05, close=True)
    found = (SearchedLevel(c=8, visits=2, n=34, good=34, state="kept"), near)
    search = SearchState(goal="capacity", low=8, high=10, levels=found)
    view = levels_view([level(8, tps=80.0), level(10, tps=80.0)], search=search)
    assert [next(cell.text for cell in row if " of " in cell.text) for row in view.table.rows] == [
        "✓ 34 of 34", "✓? 31 of 31",
    ]  # fmt: skip
    assert "✓? close to the limit" in view.marks[0] and "✓? close" in view.marks[1]
    differs = msgspec.structs.replace(near, kept_visits=1, missed_visits=1)
    missed = msgspec.structs.replace(near, room=-0.05)
    shown = [search.shown_state(one) for one in (*found, missed, differs)]
    assert shown == ["kept", "likely kept", "likely missed", "unsure"]


def test_a_condition_below_its_share_has_a_sign() -> None:
    assert "✖ first token ≤ 2 s · ✓ ≥ 20" in text(searching((2, 4)), 140)
    assert "  first token ≤ 2 s · ≥ 20 tok/s" in text(searching((0, 0), 0), 140)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_bracket_and_the_gauges_stay_at_every_width(width: int) -> None:
    line = text(searching(), width)
    assert len(line) <= width
    assert all(part in line for part in ("8", "12", "16", "✓", "≤ 2 s", "≥ 20 tok/s"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("climb", "more agents until the SLO is missed · step 7"),
        ("check", "16 missed: trying more agents, to rule out chance · step 7"),
        ("bisect", "halving the gap between 8 and 16 · step 7"),
        ("decide", "more requests at this level, to be sure of it · step 7"),
        ("beside", "a clearer level nearby, to narrow the range · step 7"),
        ("repeat", "the same level once more, to confirm it · step 7"),
    ],
)
def test_the_header_says_what_the_running_level_is_for(step: SearchStep, said: str) -> None:
    search = msgspec.structs.replace(SEARCH, step=step)
    view = header_view(session(), msgspec.structs.replace(searching(), search=search), None, None)
    assert view.detail[0] == said


def test_chips_far_from_the_border_make_room_for_those_beside_it() -> None:
    """The only bad sign between the answer and what misses it was dropped, with room for it."""
    found = tuple(
        SearchedLevel(c=c, visits=1, n=17, good=17, state="kept" if c < 14 else "missed")
        for c in (1, 2, 4, 8, 10, 12, 14, 16, 22, 32, 64)
    )
    search = msgspec.structs.replace(SEARCH, levels=found, low=12, high=22, next_c=None)
    shown = text(msgspec.structs.replace(searching(), search=search, status="ended"), 80)
    assert "12 ✓  14 ✖  16 ✖  22 ✖" in shown and "‹" in shown and " 2 ✓" not in shown.partition("12 ✓")[0]


def test_a_server_that_sends_nothing_is_named_while_it_lasts() -> None:
    """The screen had 4 tok/s and a queue, and a remark on it after the level."""
    view = header_view(session(), msgspec.structs.replace(searching(), silent_s=3.2), None, None)
    assert set(view.detail) == {"nothing received for 3 s"}


def test_a_level_beyond_one_that_missed_says_why_in_a_narrow_terminal() -> None:
    """It looks like an error to try more agents than missed it; the counts are not cut."""
    search = msgspec.structs.replace(SEARCH, low=10, high=16, next_c=21, step="check")
    waits = FirstTokens(2.0, 90, 0, 0, 1.1, 1.1, True)
    measuring = msgspec.structs.replace(
        searching(), c=21, of=21, errors=0, note="", warnings=(), search=search, first_tokens=waits
    )
    warming = msgspec.structs.replace(measuring, begun=15)
    for shown, said in (
        (measuring, "measuring 21 agents: 4 of at most 21 requests   checking 16 with more agents"),
        (warming, "warming up: 15 of 21 agents began   checking 16 with more agents · step 7"),
    ):
        view = header_view(session(), shown, None, None)
        assert "".join(part for part, _ in status_line(view, 80)).strip() == said


def test_a_search_that_ended_says_why_beside_where_it_is_saved() -> None:
    search = msgspec.structs.replace(SEARCH, next_c=None, step=None, end="no_time")
    shown = msgspec.structs.replace(searching(), search=search, status="ended", errors=0, planned=())
    view = header_view(session(), shown, Ended("done", "", f"/data/{'long/' * 8}20261119-033954-5bf9"), None)
    said = "".join(part for part, _ in status_line(view, 80)).strip()
    assert said == "done   the time was up: range not narrowed · saved: 20261119-033954-5bf9"


def test_a_quick_search_counts_down_to_its_deadline() -> None:
    view = header_view(session(), msgspec.structs.replace(searching(), left_bound="at_most"), None, None)
    assert view.clock == ("0:10 elapsed, at most 1:00 left", "0:10, at most 1:00 left")
    no_deadline = msgspec.structs.replace(searching(), left_s=None)
    assert header_view(session(), no_deadline, None, None).clock[-1] == "0:10, some minutes left"


@pytest.mark.parametrize("left_s", [None, 4.0])
def test_a_search_that_is_finishing_has_no_time_left(left_s: float | None) -> None:
    search = msgspec.structs.replace(SEARCH, next_c=None, step=None)
    shown = msgspec.structs.replace(searching(), search=search, left_s=left_s, left_bound="at_most")
    view = header_view(session(), shown, None, None)
    assert (view.phase.partition(":")[0], view.clock[-1]) == ("finishing", "0:10")
    assert "left" not in describe_frame(shown)


def test_a_search_says_why_it_goes_back_to_fewer_agents() -> None:
    """A level that was the answer so far was missed when it was run again."""
    above = SearchedLevel(c=16, visits=2, n=34, good=24, state="unsure", kept_visits=1, missed_visits=1)
    levels = tuple(above if level.c == 16 else level for level in SEARCH.levels)
    search = msgspec.structs.replace(SEARCH, step="bisect", levels=levels)
    assert step_texts(search)[0] == "16 was kept once, missed once: trying fewer · step 7"


@pytest.mark.parametrize("step", ["climb", "check", "bisect", "decide", "beside", "repeat"])
def test_what_a_level_is_for_is_said_in_shorter_words_and_never_cut(step: SearchStep) -> None:
    search = msgspec.structs.replace(SEARCH, step=step)
    found = header_view(session(), msgspec.structs.replace(searching(), search=search), None, None)
    view = found._replace(notice=())
    for width in range(40, 140):
        (said,) = [part for part, _ in status_line(view, width)[-1:]]
        assert said in ("", *view.detail)


def test_until_the_next_level_begins_none_of_its_agents_has() -> None:
    shown = msgspec.structs.replace(searching((0, 0), 0), of=None, begun=0)
    assert words(shown, 140) == (
        "how many agents? 1 ✓? 2 ✓ 4 ! 8 ✓ 12 ○ 0 requests 16 ✖ first token ≤ 2 s · ≥ 20 tok/s"
    )
    assert header_view(session(), shown, None, None).phase == "warming up: 0 of 12 agents began"


def test_a_level_that_measures_nothing_yet_says_how_many_agents_began() -> None:
    def phase(seen: Frame) -> str:
        return header_view(session(), seen, None, None).phase

    shown = msgspec.structs.replace(searching((0, 0), 0), begun=3)
    assert phase(shown) == "warming up: 3 of 12 agents began"
    assert "12 ░░░░░░░░ 16" in words(shown, 140)
    # Time makes it a level, or its chip counts its requests.
    assert phase(msgspec.structs.replace(shown, of=None)) == "warming up: 3 of 12 agents began"
    assert phase(msgspec.structs.replace(shown, search=None)) == "warming up: 3 of 12 agents began"


def test_a_visit_says_in_words_at_every_width_how_many_requests_may_decide_it() -> None:
    def said(good: int, width: int) -> str:
        view = header_view(session(), msgspec.structs.replace(searching((good, good), good), note=""), None, None)
        return "".join(part for part, _ in status_line(view, width))

    for width in (80, 120, 200):
        assert said(4, width).startswith(" measuring 12 agents: 4 of at most 8 requests ")
        assert said(0, width).startswith(" measuring 12 agents: 0 of at most 8 requests ")


def test_before_its_requests_end_a_visit_says_what_decides_it() -> None:
    known = FirstTokens(limit_s=2.0, percentile=90, in_time=3, late=0, oldest_s=1.44, percentile_s=1.2, awaited=False)
    shown = msgspec.structs.replace(searching((0, 0), 0), first_tokens=known, note="", errors=0, warnings=())
    view = header_view(session(), shown, None, None)
    moving = "3 first tokens in time, oldest wait > 1 s (limit 2 s)"
    assert view.detail[0] == f"{moving} · halving the gap between 8 and 16 · step 7"
    assert "".join(part for part, _ in status_line(view, 80)).endswith("   oldest wait > 1 s (limit 2 s)")
    early = msgspec.structs.replace(known, in_flight=2)
    assert first_token_texts(msgspec.structs.replace(shown, first_tokens=early))[-1] == (
        "3 first tokens in time (2 in flight)"
    )
    for oldest_s, waits in ((2.24, "oldest wait > 2 s (the limit)"), (3.4, "oldest wait > 3 s, over 2 s")):
        over = msgspec.structs.replace(shown, first_tokens=msgspec.structs.replace(known, oldest_s=oldest_s))
        assert first_token_texts(over)[1] == waits
    late = msgspec.structs.replace(known, in_time=0, late=2, oldest_s=None)
    assert first_token_texts(msgspec.structs.replace(shown, first_tokens=late)) == ("2 first tokens late",)


def test_what_the_kv_cache_has_room_for_does_not_hide_the_status() -> None:
    shown = msgspec.structs.replace(
        searching(), kv_cliff=KvCliff(pool_tokens=8192, context_tokens=448, predicted=18.3, slots=8), note=""
    )
    view = header_view(session(), shown, None, None)
    assert view.detail[0].startswith("halving the gap")
    live = LiveModel()
    live.apply(shown)
    assert machine_view(live_data(live)).kv_room[0] == "KV cache: room for 18 contexts of about 448 tokens; 8 slots"


@pytest.mark.parametrize(("code", "is_said"), [("slots", True), ("kv_cache", False)])
def test_the_room_in_the_kv_cache_is_linked_to_the_answer(code: str, is_said: bool) -> None:
    limit = AnswerSentence(code=code, sentence="")
    found = Answer(headline=AnswerSentence(code="capacity", sentence=""), limit=limit, agents=12, missed_c=13)
    kv = KvCliff(pool_tokens=8192, context_tokens=448, predicted=18.3)
    live = LiveModel()
    live.apply(msgspec.structs.replace(searching(), status="ended", kv_cliff=kv, answer=found))
    texts = machine_view(live_data(live, has_ended=True)).kv_room
    assert ("so it should not be what limits" in texts[0]) == is_said


def test_a_cliff_is_about_queues_not_an_slo() -> None:
    search = msgspec.structs.replace(SEARCH, goal="cliff", step=None)
    shown = msgspec.structs.replace(frame(12), search=search)
    assert words(shown, 120) == "cliff 1 ? 2 ✓ 4 ! 8 ✓ 12 ███░░░░░ 3 of 8 requests 16 ✖"
    assert step_texts(search) == ()


def test_a_sweep_shows_which_of_its_levels_are_done_running_and_planned() -> None:
    shown = msgspec.structs.replace(frame(4), levels=(level(c=1), level(c=2)))
    assert words(shown, 80) == "sweep 1 ✓ 2 ✓ 4 ███░░░░░ 3 of 8 requests 8"


def test_manual_control_names_the_keys_that_lead_on() -> None:
    shown = msgspec.structs.replace(frame(4), steered=True)
    assert "manual control" in text(shown, 80) and "N finds how many agents" in text(shown, 80)


@pytest.mark.parametrize("width", [70, 80, 100, 120])
def test_manual_control_keeps_its_name_as_levels_are_added(width: int) -> None:
    for count in range(6):
        levels = tuple(level(c=c) for c in (1, 2, 4, 8, 16)[:count])
        shown = msgspec.structs.replace(frame(32), steered=True, levels=levels)
        assert text(shown, width).startswith(" manual control "), count


def test_the_conditions_of_the_slo_keep_their_names_in_a_narrow_terminal() -> None:
    search = msgspec.structs.replace(SEARCH, levels=SEARCH.levels[:2], low=2, high=None)
    shown = msgspec.structs.replace(searching(), search=search)
    assert words(shown, 80) == "agents? 1 ✓? 2 ✓ 12 ○ ✓ first token ≤ 2 s · ✓ ≥ 20 tok/s"


def moments() -> list[Frame]:
    """A search from its first level to the end."""
    begins = msgspec.structs.replace(SEARCH, levels=(), low=None, high=None, visits=0, step="climb")
    few = msgspec.structs.replace(SEARCH, levels=SEARCH.levels[:2], low=2, high=None)
    ended = msgspec.structs.replace(SEARCH, next_c=None, step=None)
    many = tuple(SearchedLevel(c=c, visits=1, n=6, good=6, state="kept") for c in range(1, 12))
    full = msgspec.structs.replace(SEARCH, levels=(*many, *SEARCH.levels[-1:]), low=11)
    shown = [msgspec.structs.replace(searching(), search=search) for search in (begins, few, SEARCH, full, ended)]
    return [*shown, msgspec.structs.replace(searching((0, 0), 0), begun=3), msgspec.structs.replace(searching(), c=8)]


@pytest.mark.parametrize("width", [70, 80, 90, 100, 120, 160, 200])
def test_the_line_of_a_search_has_one_shape_at_a_width(width: int) -> None:
    lines = [text(moment, width) for moment in moments()]
    assert len({line.lstrip().partition("?")[0] for line in lines}) == 1
    assert len({line.rpartition("first token")[1] for line in lines}) == 1
    running = "12 ○" if "12 ○" in lines[0] else "░"
    assert all(running in line for line in (lines[0], lines[2], lines[3], lines[5]))


def test_the_plan_counts_the_requests_of_a_visit_and_the_row_of_its_level_has_those_before_it() -> None:
    again = SearchedLevel(c=12, visits=1, n=5, good=1, state="unsure")
    search = msgspec.structs.replace(SEARCH, levels=(again,))
    shown = msgspec.structs.replace(searching((3, 3), 3), search=search, run=2)
    assert "12 again" in text(shown, 80) and "12 again ███░░░░░" in text(shown, 140)
    assert header_view(session(), shown, None, None).phase == "measuring 12 agents again: 3 of at most 8 requests"
    now = level_now(shown)
    assert now is not None and now.counted == "was 1 of 5", "its figures are from before"
    # The search has counted this visit: its verdict stands.
    done = msgspec.structs.replace(shown, run=1)
    assert (now := level_now(done)) is not None and not now.counted


def test_a_level_that_was_missed_while_something_slowed_the_server_down_is_not_said_to_miss_the_slo() -> None:
    """The header says that it is not sure, and so do the plan, the curve, the levels and the progress."""
    busy = QualityLine(code="host_pressure", name="host pressure", state="doubtful", value="60 %", sentence="")
    levels = tuple(level(c, tps=40.0 * c) for c in (1, 2, 4, 8, 16))
    open_level = msgspec.structs.replace(SEARCH.levels[-1], state="unsure")
    search = msgspec.structs.replace(SEARCH, levels=(*SEARCH.levels[:-1], open_level))
    shown = msgspec.structs.replace(searching((2, 4)), search=search, levels=levels, quality=(busy,))
    live = LiveModel()
    live.apply(shown)
    assert "at least 8 · 16 missed? ·" in describe_frame(msgspec.structs.replace(shown, note=""))
    assert "not sure" in header_view(session(), shown, None, None).quality[0]
    assert "16 ?" in text(shown, 140) and "✖" not in text(shown, 140)
    assert ("16 ?", "warn") in plan_line(plan_view(session(), shown), 140)
    curve = curve_view(levels, (), "", "", (), *live.marked_by)
    assert curve.notes[0] == "▸ most agents so far 8 · ? not sure 16"
    assert curve.charts[0].boundary == ((8, 16), None)
    table = levels_view(levels, None, (), "", (), *live.marked_by).table
    assert "✖" not in "".join(cell.text for row in table.rows for cell in row)


def test_a_sweep_with_an_slo_has_no_sign_of_a_kept_level_before_it_is_judged() -> None:
    levels = (level(c=1), level(c=2))
    shown = msgspec.structs.replace(frame(4), levels=levels, slo=DEFAULT_SLO)
    assert "✓" not in text(shown, 120).partition("4 ")[0]
    verdicts = tuple(
        Goodput(c=c, kept=kept, good=3, n=3, share=1.0, per_s=None, out_tps=None) for c, kept in ((1, True), (2, None))
    )
    ended = msgspec.structs.replace(shown, status="ended", goodput=verdicts)
    assert "sweep 1 ✓ 2 ? 4 8" in words(ended, 120)


@pytest.mark.parametrize(
    ("good", "n", "said"),
    [
        ((9, 13), 13, "already over 2 s too often: 12 will miss"),
        ((13, 9), 13, "already below 20 tok/s too often: 12 will miss"),
        ((12, 13), 13, ""),
        ((18, 18), 18, "12 will be kept"),
        ((17, 18), 18, ""),
        ((0, 0), 0, ""),
    ],
)
def test_a_level_that_can_only_end_one_way_says_so_before_its_end(good: tuple[int, int], n: int, said: str) -> None:
    """Eight requests are to be done, and those of twelve agents may be in flight at the end."""
    shown = msgspec.structs.replace(searching(good, n), done=n, of=8, note="")
    assert outlook_texts(shown)[:1] == ((said,) if said else ())
    detail = header_view(session(), shown, None, None).detail
    assert detail[0] == (said or "halving the gap between 8 and 16 · step 7")
    assert (said or "halving the gap between 8 and 16") in describe_frame(shown)
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    assert "miss" not in "".join(outlook_texts(msgspec.structs.replace(shown, quality=(busy,))))
    assert not outlook_texts(msgspec.structs.replace(shown, status="ended"))


@pytest.mark.parametrize(("late", "is_open"), [(5, False), (10, True)])
def test_the_best_level_is_open_as_soon_as_its_repeated_visit_can_only_miss_the_slo(late: int, is_open: bool) -> None:
    """Eight late requests are allowed, of 38 of earlier visits and at most 42 of this one; two were late before."""
    search = SearchState(
        goal="capacity", low=22, at_least=22, high=24, visits=9, next_c=22, step="decide",
        levels=(
            SearchedLevel(c=20, visits=1, n=19, good=19, state="kept"),
            SearchedLevel(c=22, visits=2, n=38, good=36, state="kept"),
            SearchedLevel(c=24, visits=2, n=42, good=16, state="missed"),
        ),
    )  # fmt: skip
    tally = SloTally(parse_slo(DEFAULT_SLO))
    tally.add_counts(22, [(19 - late, 19), (19, 19)])
    levels = tuple(level(c, tps=40.0 * c) for c in (20, 22, 24))
    shown = msgspec.structs.replace(
        frame(22), search=search, slo=DEFAULT_SLO, slo_kept=tally.conditions(), levels=levels, run=3, done=19, of=20
    )
    live = LiveModel()
    live.apply(with_outlook(shown))
    said = (
        "▸ most agents so far 20, 22 not any more · ? not sure 22"
        if is_open
        else "▸ most agents so far 22 · ▼ past it 24"
    )
    assert curve_view(levels, (), "", "", (), *live.marked_by).notes[0] == said
    now = level_now(live.frame)
    assert now is not None and now.counted == "was 36 of 38"
    view = levels_view(levels, None, (), "", (), *live.marked_by, now=now)
    assert [row[0].text for row in view.table.rows] == (["▸20", "?22", "24"] if is_open else ["20", "▸22", "▼24"])
    assert ("? not sure: measured again now" in view.marks[0]) == is_open and "slowed" not in view.marks[0]
    # What slows the server down proves nothing, and the search has its own verdict at the end of the visit.
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    for other in (msgspec.structs.replace(shown, quality=(busy,)), msgspec.structs.replace(shown, run=2)):
        assert with_outlook(other).search == search


def test_a_level_that_is_checked_beyond_one_that_is_not_sure_says_so() -> None:
    unsure = SearchedLevel(c=32, visits=1, n=9, good=7, state="unsure")
    search = SearchState(goal="capacity", low=16, high=32, visits=5, next_c=64, step="check", levels=(unsure,))
    assert step_texts(search)[1] == "32 is not sure yet: trying more agents"
    differs = msgspec.structs.replace(unsure, visits=2, kept_visits=1, missed_visits=1)
    again = msgspec.structs.replace(search, levels=(differs,))
    assert step_texts(again)[1] == "32 was kept once, missed once: trying more agents"


def test_the_level_that_ends_the_range_stays_in_the_line() -> None:
    """24 may still be kept: 26 is why the answer is at most 25."""
    kept = [SearchedLevel(c=c, visits=1, n=17, good=17, state="kept") for c in (1, 2, 4, 8, 16, 20)]
    missed = [SearchedLevel(c=c, visits=1, n=17, good=0, state="missed") for c in (26, 28, 32, 52)]
    levels = (*kept, SearchedLevel(c=24, visits=2, n=36, good=17, state="unsure"), *missed)
    search = SearchState(goal="capacity", low=20, high=24, visits=11, levels=levels)
    ended = msgspec.structs.replace(frame(24), search=search, slo=DEFAULT_SLO, status="ended")
    for width in (60, 80, 120):
        assert "20 ✓ 24 ? 26 ✖" in words(ended, width)
