from __future__ import annotations

import os
import sys
import termios
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.limits.slo import DEFAULT_SLO, SloTally, parse_slo
from swarmtui.experiments.groups import ListRow
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Finding, Goodput, KeptShare, SearchedLevel, SearchState
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.session import ClientInfo, Event, Level, RateSummary, Session, Spread, Summary, TaskFigures
from swarmtui.model.tuning import LoggedChange
from swarmtui.numbers import MISSING
from swarmtui.report.figure_tables import throughput_tables
from swarmtui.report.level_columns import COLUMNS, WEAK_BASE
from swarmtui.report.levels import level_table as build_levels
from swarmtui.report.session import FORMULAS, goodput_table, level_blocks, session_blocks, session_facts
from swarmtui.report.session_list import IN_APP, full_answer, session_list
from swarmtui.report.session_list import session_table as tabulated
from swarmtui.report.table import Cell, Table, fit
from swarmtui.report.tasks import task_table
from swarmtui.report.text import paint
from swarmtui.sessions.index import SessionRow
from swarmtui.text import display_width, pad, sanitize, truncate
from swarmtui.tui.live.levels import levels_view
from tests.analysis.level_builders import level as built_level
from tests.analysis.level_builders import summary


def level(c: int, **fields: Any) -> Level:
    """A level in which nothing but the given fields was measured."""
    made: dict[str, Any] = dict.fromkeys(Level.__struct_fields__)
    made |= {"c": c, "runs": 0, "n": 0, "ok": 0, "errors": 0, "unfinished": 0, "error_counts": {}, "cap_hits": 0}
    made |= {"degenerate": 0, "complete": True, "flags": (), "by_run": (), "replicas": (), "load": "closed"}
    made |= {"token_source": "usage"} | dict.fromkeys(("per_stream_tps", "per_stream_tps_clean"), RateSummary())
    made |= dict.fromkeys(("ttft_s", "ttfo_s", "tpot_s", "icl_s", "e2e_s"), Spread(n=0))
    return Level(**(made | fields))


FAILED = Finding(code="errors", text="1 of 16 requests failed: 1 reset")
BELOW = Finding(code="in_flight", text="mean in flight 3.7, planned 4")
ALONE = level(
    1,
    n=4,
    ok=4,
    out_tps_steady=81.33,
    out_tps_wall=81.2,
    per_stream_tps=RateSummary(mean=84.07, min=83.0, max=85.0),
    ttft_s=Spread(n=4, mean=0.28, min=0.2114, max=0.3521),
    tpot_s=Spread(n=4, mean=0.011894),
    e2e_s=Spread(n=4, mean=12.594, min=12.594, max=12.594),
    c_achieved=1.0,
    contention=0.0,
    rate_speedup=1.0,
)
FOUR = level(
    4,
    n=16,
    ok=15,
    errors=1,
    out_tps_steady=225.04,
    out_tps_wall=201.9,
    per_stream_tps=RateSummary(mean=58.2, p50=58.1),
    ttft_s=Spread(n=15, min=0.2, p50=0.91234, max=2.0),
    tpot_s=Spread(n=15, mean=0.01718),
    e2e_s=Spread(n=15, mean=20.0, p50=18.6),
    c_achieved=3.7,
    contention=0.308,
    rate_speedup=2.767,
    flags=(FAILED, BELOW),
)


def level_table(levels: Sequence[Level]) -> str:
    return paint(level_blocks(levels))


def session_table(rows: Sequence[SessionRow]) -> str:
    return paint(session_list([ListRow(row) for row in rows], {}))


def test_level_table() -> None:
    """Not measured is a dash. The best rate is marked."""
    assert level_table([ALONE, FOUR, level(8, flags=(BELOW,))]) == (
        "|  C |  n | tok/s | per agent |   TTFT |    TPOT |    e2e | slowdown | scaling | err |\n"
        "| -: | -: | ----: | --------: | -----: | ------: | -----: | -------: | ------: | --: |\n"
        "|  1 |  4 |  81.3 |      84.1 | 278 ms | 11.9 ms | 12.6 s |      0 % |   1.00× |   0 |\n"
        "| ▸4 | 16 |   225 |      58.2 | 912 ms | 17.2 ms | 18.6 s |     31 % |   2.77× |   1 |\n"
        "|  8 |  0 |     – |         – |      – |       – |      – |        – |       – |   0 |\n"
        "\n"
        "tok/s: output of all agents while C requests were in flight (steady). per agent: output tok/s of one\n"
        "  agent while it writes (mean). TTFT: time to the first token (median). TPOT: time between tokens of\n"
        "  one answer (mean). e2e: time to the end of an answer (median). slowdown: how much less one agent\n"
        "  gets than with C=1. scaling: output of all agents compared with C=1. slowdown and scaling are not\n"
        "  sure: the rate with one agent is not known well. ▸: best, the lowest C with 95 % of the most tok/s\n"
        "  before a cliff; ▼: past it.\n"
        "\n"
        "C=4: 1 of 16 requests failed: 1 reset\n"
        "C=4,8: mean in flight 3.7, planned 4\n"
    )


def test_steady_has_its_half_width() -> None:
    table = level_table(
        [level(2, n=8, ok=8, out_tps_steady=200.0, out_tps_steady_hw=3.0), level(4, out_tps_steady=9.0)]
    )
    top = table.splitlines()
    assert [cell.strip() for cell in top[2].split("|")[3:5]] == ["200", "1.5 %"], "the half-width is 3"
    assert [cell.strip() for cell in top[3].split("|")[3:5]] == ["9.00", "–"], "three digits"
    assert "±: half-width of its 95 % interval" in " ".join(table.split())


@pytest.mark.parametrize(
    ("half_width", "scaling", "slowdown"),
    [(None, "1.96×", "46 %"), (0.001, "1.96×", "46 %"), (0.11, "2.0×", "46 %")],
)
def test_what_is_compared_with_one_agent_has_the_digits_of_its_half_width(
    half_width: float | None, scaling: str, slowdown: str
) -> None:
    hw = None if half_width is None else 1500 * half_width
    one = built_level(4, tps=1500, out_tps_steady_hw=hw, rate_speedup=1.963, contention=0.4561)
    cells = [COLUMNS[name].value for name in ("scaling", "slowdown")]
    assert [read(one) for read in cells if read is not None] == [Cell(scaling), Cell(slowdown)]


@pytest.mark.parametrize(
    ("answers", "half_width", "weak"), [(4, None, True), (16, None, False), (4, 0.02, False), (16, 0.36, True)]
)
def test_what_is_compared_with_a_weak_rate_of_one_agent_has_a_mark(
    answers: int, half_width: float | None, weak: bool
) -> None:
    """A few requests, or a wide interval, at C=1 make each slowdown doubtful, also in reports."""
    hw = None if half_width is None else 100 * half_width
    one = built_level(1, tps=100, n=answers, out_tps_steady_hw=hw, rate_speedup=1.0, contention=0.0)
    four = built_level(4, tps=200, rate_speedup=2.0, contention=0.5)
    blocks = (levels_view([one, four]).table, level_blocks([one, four])[0], throughput_tables([one, four])[2])
    for table in blocks:
        assert isinstance(table, Table)
        at = {column.id: number for number, column in enumerate(table.columns)}
        cells = [table.rows[1][at[id]] for id in ("slowdown", "scaling")]
        assert [cell.text for cell in cells] == ["50 %", "2.00×"]
        assert [cell.code == "unsure" for cell in cells] == [weak, weak]
        assert table.rows[0][at["slowdown"]].text == "0 %", "the base itself is not compared"
    assert (WEAK_BASE in " ".join(level_table([one, four]).split())) == weak


def test_few_answers_of_which_some_were_cut_off_have_no_range() -> None:
    table = throughput_tables([level(1, e2e_s=Spread(n=3, min=0.3), ttft_s=ALONE.ttft_s)])[1]
    assert [cell.text for cell in table.rows[0]] == ["1", "278 ms (211 ms–352 ms)"], "e2e has no value"


def test_counted_chunks_are_marked() -> None:
    guessed = level(2, n=8, ok=8, cap_hits=3, out_tps_steady=1097.2, token_source="chunks", e2e_s=Spread(n=8, p50=70))
    top = level_table([guessed]).splitlines()
    assert [cell.strip() for cell in top[0].split("|")[1:-1]] == (["C", "n", "tok/s", "e2e", "err"])
    assert [cell.strip() for cell in top[2].split("|")[1:6]] == ["2", "8", "~1,100", "70.0 s", "0"]
    assert "▸" not in level_table([guessed]), "a single level is not marked as the best"


@pytest.mark.parametrize(("good", "shown"), [(0, "> 2 s"), (4, MISSING)])
def test_a_level_without_a_ttft_says_that_most_requests_waited_past_the_limit(good: int, shown: str) -> None:
    """A quick search whose time is up ends a visit before its first tokens have come."""
    tally = SloTally(parse_slo(DEFAULT_SLO))
    tally.add_counts(12, [(good, 7), (0, 0)])
    judged = Goodput(
        c=12, kept=None, good=good, n=7, share=None, per_s=None, out_tps=None, conditions=tally.conditions()
    )
    table = levels_view([built_level(c=8), level(12, unfinished=7)], goodput=[judged], slo=DEFAULT_SLO).table
    ttft = [column.id for column in table.columns].index("ttft")
    assert table.rows[1][ttft].text == shown


def test_a_running_search_says_that_the_median_of_the_judged_first_tokens_is_past_the_limit() -> None:
    """Goodput is known at the end; the requests in the window, some of which are not judged, have another median."""
    late = level(12, n=4, ttft_s=Spread(n=12, p50=1.9), judged_ttft_s=Spread(n=12, min=2.1))
    known = level(14, n=4, ttft_s=Spread(n=12, p50=1.9), judged_ttft_s=Spread(n=12, p50=2.3))
    later = level(16, n=4, ttft_s=Spread(n=12, p50=4.13), judged_ttft_s=Spread(n=12, min=2.1))
    table = levels_view([late, known, later], slo=DEFAULT_SLO).table
    ttft = [column.id for column in table.columns].index("ttft")
    assert [row[ttft].text for row in table.rows] == ["> 2 s", "2.30 s", "> 4.1 s"], "those that arrived took so long"
    assert "of the requests that the SLO counts" in " ".join(level_table([late, known]).split())
    assert "SLO counts" not in level_table([level(14, n=4, ttft_s=Spread(n=12, p50=1.9))])


def test_notes_name_figures_by_the_titles_of_their_columns() -> None:
    """Of a search, the room to the limit takes the place of the p90; no column is called stream."""
    judged = level(12, n=4, ttft_s=Spread(n=12, p50=1.9), judged_ttft_s=Spread(n=12, p50=1.9))
    search = SearchState(goal="capacity")
    for found, named in ((None, "TTFT and p90"), (search, "TTFT")):
        table = build_levels([judged], growing=True, search=found)
        assert f". {named}: of the requests that the SLO counts" in table.note
    task = TaskFigures(
        c=1, type="chat", turn=0, n=2, ok=2, ttft_s=Spread(n=2), per_stream_tps=9.0, e2e_s=1.0, tokens_out=9.0,
        verdicts={},
    )  # fmt: skip
    tasks = task_table([task])
    assert "stream" not in f"{tasks.note} {FORMULAS}" and all(name in tasks.note for name in ("tok/s", "TTFT"))
    assert {"tok/s", "TTFT"} <= {column.short or column.title for column in tasks.columns}


def test_without_a_single_stream_nothing_is_compared_with_it() -> None:
    measured = {"n": 8, "ok": 8, "out_tps_steady": 100.0}
    alone = level_table([level(2, **measured), level(4, **measured)])
    assert "scaling" not in alone and "slowdown" not in alone and "C=1" not in alone
    with_one = level_table([level(1, **measured, contention=0.0, rate_speedup=1.0), level(4, **measured)])
    assert "scaling: output of all agents compared with C=1" in " ".join(with_one.split())


def test_table_is_at_most_100_columns_wide() -> None:
    big = level(
        20_000,
        n=80_000,
        errors=12_345,
        cap_hits=11_111,
        token_source="chunks",
        out_tps_steady=1_234_567.0,
        out_tps_steady_hw=123_456.0,
        out_tps_wall=1_234_567.0,
        per_stream_tps=RateSummary(mean=1234.5),
        tpot_s=Spread(n=9, mean=12.3456),
        ttft_s=Spread(n=9, p50=0.00023),
        e2e_s=Spread(n=9, p50=12345.6),
        c_achieved=19_876.5,
        contention=0.123,
        rate_speedup=1234.5,
        flags=(Finding(code="errors", text="x" * 40 + " " + "y" * 80),),
    )
    text = level_table([ALONE, FOUR, big])
    lines = text.splitlines()
    assert max(map(display_width, lines)) <= 100
    assert {line.count("|") for line in lines[:5]} == {12} and "not shown" not in text
    assert lines[4] == (
        "| ▸20000| 80000| ~1,230,000| 10 %|    ~1,230| 0.23 ms| ~12346 ms| 12346 s|     12 %|   1200×| 12345|"
    )


@pytest.mark.parametrize(("columns", "dropped"), [(100, ""), (80, ""), (50, "TPOT, e2e, err"), (300, "")])
def test_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, dropped: str) -> None:
    """Spaces next to the bars are dropped first, then columns, which are listed."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        text, listed = level_table([ALONE, FOUR]), session_table(LISTED)
    os.close(master)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and len({display_width(row) for row in rows}) == 1
    assert max(map(display_width, text.splitlines())) <= min(columns, 100)
    assert columns < 80 or max(map(display_width, listed.splitlines())) <= min(columns, 100)
    assert (f"not shown for lack of space: {dropped}." in text) if dropped else "not shown" not in text
    assert ("TTFT" in rows[0], "tok/s" in rows[0]) == (True, True)


def test_empty_tables() -> None:
    assert level_table([]) == "nothing was measured\n"
    assert session_table([]) == "no sessions yet\n"


LISTED = [
    SessionRow(id="20261115-020000-0001", state="running", model="qwen3", workload="chat"),
    SessionRow(
        id="20261115-014455-3f9a",
        state="done",
        model="Qwen/Qwen3-Coder-30B-A3B-Instruct-with-a-long-name",
        workload="coding",
        label="seqs=2 | tp",
        requests=60,
        best_out_tps=225.04,
        best_c=4,
        simulated=True,
    ),
    SessionRow(id="holiday photos", problem="no journal.jsonl in it"),
]


def test_session_table() -> None:
    shown = session_table(LISTED)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line.startswith("|")]
    assert cells[0][:4] == ["id", "state", "model", "workload"] and cells[0][-2:] == ["requests", "answer"]
    assert cells[2] == ["20261115-020000-0001", "running", "qwen3", "chat", "", "–", "–"]
    assert cells[3][1] == "done" and cells[3][2].startswith("(sim) Qwe") and cells[3][4].startswith("seqs=2 ¦")
    assert cells[3][5:] == ["60", "C=4: 225 tok/s"]
    assert cells[4][:2] == ["holiday photos", "unreadable"] and cells[4][5:] == ["–", "–"]
    assert shown.endswith("\n\nholiday photos: no journal.jsonl in it\n")


def test_the_range_of_an_answer_is_listed_with_it_and_hardly_needs_more_room() -> None:
    """A wide range is the answer itself, and one agent more or less needs none."""
    made: dict[str, Any] = {"state": "done", "agents_low": 26, "agents_high": 27, "agents": 26}
    rows = [
        SessionRow(id="20261117-231739-c441", label="--parallel 2 → 4", **made),
        SessionRow(id="a", **made | {"doubtful": True}),
        SessionRow(id="b", agents=34, agents_range=(16, 35), agents_low=16, agents_high=35),
        SessionRow(id="c", agents=8, agents_low=8, agents_high=8),
        SessionRow(id="d", agents=1, agents_low=1, agents_open=True),
    ]
    change = LoggedChange(
        before="b", after=rows[0].id, what="", effect="", verdict="more agents", agents=(22, 26), agents_detail=""
    )
    table = tabulated([ListRow(row) for row in rows], {}, IN_APP, effects={rows[0].id: change})
    titles = [column.id for column in table.columns]
    assert titles[-3:] == ["answer", "effect", "state"]
    said = [row[titles.index("answer")].text for row in table.rows]
    assert said == ["26 (26–27)", "? 26 (26–27)", "16–35 agents", "8 agents", "1+ agents"]
    assert [full_answer(row) for row in rows[:3]] == ["26 agents (26–27)", "? 26 agents (26–27)", "16–35 agents"]
    assert "effect" in [column.id for column in fit(table, 94, (2,)).columns]


def test_counted_chunks_are_marked_in_the_session_table() -> None:
    row = SessionRow(id="x", state="done", requests=4, best_out_tps=225.04, best_c=4, chunks_counted=True)
    assert "| C=4: ~225 tok/s |" in session_table([row])


def test_session_text() -> None:
    session = Session(
        id="20261115-014455-3f9a",
        created="2026-11-15T01:44:55Z",
        t0_ns=1_000_000_000,
        endpoints=(Endpoint(url="http://127.0.0.1:8000", model="evil\x1b]0;owned\x07\x1b[31mname"),),
        workload="coding",
        workload_digest="0123456789abcdef",
        workload_spec={},
        plan=Plan(load=Closed(levels=(1, 4))),
        client=ClientInfo(version="0.1.0", python="3.11.7", host="box", cores=2),
        simulated=True,
    )
    event = Event(t_ns=2_500_000_000, name="paused", detail="by\nhand\x07")
    summary = Summary(
        schema=1,
        state="stopped",
        message="Ctrl-C",
        session=session,
        levels=(ALONE, FOUR),
        warmup_requests=2,
        events=(event,),
    )
    text = paint(session_blocks(summary))
    assert text.startswith(
        "session      20261115-014455-3f9a\n"
        "date         2026-11-15T01:44:55Z\n"
        "endpoint     http://127.0.0.1:8000 · evilname · SIMULATED\n"
        "workload     coding (0123456789ab)\n"
        "plan         sweep over C = 1, 4; 1 × 2C–3C requests per level; warm-up 2\n"
        "client       swarmtui 0.1.0, Python 3.11.7, 2 cores\n"
        "schema       1\n"
        "state        stopped: Ctrl-C\n"
        "client host  box\n"
        "\n"
        "|  C |"
    )
    assert text.endswith("C=4: mean in flight 3.7, planned 4\n\n+1.5 s paused: by hand\n")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x07b", "alinkb"),
        ("title\x1b]0;never ended", "title"),
        ("\x9b31mc1", "c1"),
        ("two\r\nlines\tand tab", "two lines and tab"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("é 漢字 ok", "é 漢字 ok"),
        ("\x1b", ""),
    ],
)
def test_escape_sequences_and_control_characters_are_removed(given: str, shown: str) -> None:
    assert sanitize(given) == shown


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]\\;m\x07\x9b\x9c\n"))))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert sanitize(text).isprintable()


def test_wide_characters_take_two_columns() -> None:
    assert display_width("漢字") == 4
    assert truncate("漢字漢字", 5) == "漢字…"
    assert truncate("short", 5) == "short"
    assert pad("漢", 4, right=True) == "  漢"


def test_an_slo_says_for_each_level_how_many_requests_met_it_and_whether_it_is_kept() -> None:
    counts = {1: (4, 4, None), 4: (10, 16, False)}
    judged = [
        Goodput(c=c, n=n, good=good, share=good / n, per_s=None, out_tps=None, kept=kept)
        for c, (good, n, kept) in counts.items()
    ]
    found = msgspec.structs.replace(summary([ALONE, FOUR]), goodput=tuple(judged))
    shown = paint(level_blocks(found.levels, found))
    assert "SLO met" in shown and "? 4 of 4" in shown and "✖ 10 of 16" in shown
    kept = SearchedLevel(c=1, visits=1, n=4, good=4, state="kept")
    dip = SearchedLevel(c=4, visits=1, n=16, good=10, state="dip")
    search = SearchState(goal="capacity", levels=(kept, dip))
    searched = paint(session_blocks(msgspec.structs.replace(found, search=search)))
    assert "✓ 4 of 4" in searched and "! 10 of 16" in searched, "as the search judged them"
    in_app = levels_view(found.levels, search=search, goodput=judged).table
    at = [column.id for column in in_app.columns].index("slo")
    assert [row[at].text for row in in_app.rows] == ["✓ 4 of 4", "! 10 of 16"]
    assert "SLO met" not in paint(level_blocks([ALONE, FOUR]))


def test_one_level_of_a_search_has_one_count_in_all_tables() -> None:
    """Three unfinished requests had met the limit on the first token; how fast they would have written is open."""
    first, speed = (
        KeptShare(limit=name, required=0.9, good=good, n=n, share=good / n, share_low=None, share_high=None, kept=None)
        for name, good, n in (("TTFT", 11, 19), ("tok/s", 16, 16))
    )
    judged = Goodput(
        c=4, n=16, good=8, share=0.5, per_s=None, out_tps=None, kept=False, conditions=(first, speed)
    )  # fmt: skip
    search = SearchState(goal="capacity", levels=(SearchedLevel(c=4, visits=1, n=19, good=11, state="missed"),))
    for searched in (search, None):
        found = msgspec.structs.replace(summary([FOUR]), goodput=(judged,), search=searched)
        assert goodput_table(found).rows[0][1].text == "11 of 19" and goodput_table(found).rows[0][2].text == "57.9 %"
        assert "✖ 11 of 19" in paint(level_blocks(found.levels, found))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(goal="capacity", budget_s=60.0), "quick search for the capacity, 60 s; warm-up 4"),
        (Plan(goal="capacity"), "search for the capacity; warm-up 4"),
        (Plan(goal="cliff"), "search for the cliff; 1 × 2C–3C requests per level; warm-up 4"),
    ],
)
def test_the_plan_of_a_search_names_no_levels_that_it_did_not_ask_for(plan: Plan, said: str) -> None:
    assert dict(session_facts(summary([FOUR], plan=plan)))["Plan"] == said


def test_a_level_without_a_figure_has_no_change() -> None:
    """Before and after have a wall rate, which is not what the row shows."""
    before = [built_level(c, tps=50.0 * c) for c in (1, 4)]
    after = [built_level(1, tps=60.0), built_level(4, tps=400.0, out_tps_steady=None, steady_s=None)]
    pair = compare_pair(summary(before, "20261115-000001-aaaa"), summary(after, "20261115-000002-bbbb"))
    assert any(row.key == (4, None) and row.leads and row.change is not None for row in pair.rows)
    table = levels_view(after, pair).table
    at = {column.id: number for number, column in enumerate(table.columns)}
    first, second = table.rows
    assert first[at["change"]].text.startswith("? +20 %")
    assert (second[at["steady"]].text, second[at["change"]].text) == (MISSING, MISSING)
