"""Two capacities are compared by their ranges, in one sentence."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from swarmtui.analysis.answer.commands import command_again
from swarmtui.analysis.compare.agents import compare_agents
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.compare.verdicts import Interval, interval_text
from swarmtui.experiments.baseline import compare_with_baseline
from swarmtui.experiments.groups import ListRow
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep, SlotsForecast
from swarmtui.model.findings import Goodput, Scaling, Slots
from swarmtui.model.plan import Plan
from swarmtui.model.session import Spread, Summary
from swarmtui.model.telemetry import QualityLine
from swarmtui.numbers import local_time
from swarmtui.report.changes import change_tables
from swarmtui.report.comparison import answer_lines, pair_answer, pair_blocks
from swarmtui.report.levels import level_table
from swarmtui.report.session_list import session_table
from swarmtui.report.text import paint
from swarmtui.report.tuning import log_blocks
from swarmtui.report.verdicts import pair_code
from swarmtui.sessions.index import SessionRow
from swarmtui.tui.baseline import compared_text
from tests.analysis.level_builders import level, summary

SAID = AnswerSentence(code="capacity", sentence="12 agents")


def answered(agents: int, low: int, high: int | None, slo: str = "ttft_p90=2s") -> Answer:
    return Answer(headline=SAID, limit=SAID, agents=agents, low=low, high=high, slo=slo, confidence=0.8)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((12, 3, 15), (0, 0, 0), "fewer agents: 12 → 0, 80 % sure"),
        ((8, 8, 9), (12, 10, 13), "more agents: 8 → 12, 80 % sure"),
        ((8, 8, 9), (30, 29, None), "more agents: 8 → 30, 80 % sure"),
        ((3, 0, 4), (30, 30, None), "more agents: 3 → 30 or more, 80 % sure"),
        ((18, 17, 19), (18, 18, 18), "same: 18 (17–19) → 18"),
        ((18, 17, 19), (20, 19, 21), "not sure yet: 18 (17–19) → 20 (19–21)"),
        ((5, 5, 5), (4, 2, 9), "not sure yet: 5 → 4 (2–9)"),
    ],
)
def test_the_ranges_decide(before: tuple[int, int, int], after: tuple[int, int, int | None], said: str) -> None:
    found = compare_agents(answered(*before), answered(*after))
    assert found is not None and found.sentence() == said


def test_the_answer_is_said_first_then_why_it_is_not_sure() -> None:
    busy, doubts = ["the host was busy"], ["the host was busy", "chunks arrived together", "the server froze"]
    overlapping, apart = (
        compare_agents(answered(*before), answered(*after))
        for before, after in (((18, 17, 19), (20, 19, 21)), ((3, 0, 4), (12, 12, 12)))
    )
    assert overlapping is not None and apart is not None
    assert overlapping.sentence(busy) == ("not sure yet: 18 (17–19) → 20 (19–21); the host was busy")
    assert apart.sentence(doubts) == (
        "not sure yet: 3 → 12; the host was busy, chunks arrived together and 1 other doubt"
    )
    assert apart.claim(doubted=True) == "not sure yet: 3 → 12"


def quick_search(
    id: str,
    agents: int,
    *,
    confidence: float = 0.8,
    quality: Literal["ok", "doubtful"] = "ok",
    flags: str = "--parallel 4",
    disturbed: str = "",
) -> Summary:
    """A search that kept each level up to `agents`, and missed the next one."""
    levels = [level(c, tps=30.0 * c, steady_s=10.0, out_tps_steady_hw=1.0) for c in (1, agents - 1, agents, agents + 1)]
    found = summary(levels, id, server_flags=flags, plan=Plan(goal="capacity", budget_s=60.0))
    at = AnswerPoint(c=agents, ttft_s=1.0, per_stream_tps=210.0 / agents, out_tps=30.0 * agents)
    answer = msgspec.structs.replace(
        answered(agents, agents, None if disturbed else agents),
        missed_c=agents + 1, confidence=confidence, quality=quality, at_capacity=at, disturbed=disturbed,
    )  # fmt: skip
    judged = tuple(
        Goodput(c=one.c, n=16, good=16, share=1.0, per_s=None, out_tps=None, kept=one.c <= agents) for one in levels
    )
    return msgspec.structs.replace(found, answer=answer, goodput=judged)


@pytest.mark.parametrize(
    ("confidence", "quality", "said"),
    [
        (0.8, "ok", "not sure yet: 7 → 6"),
        (0.99, "doubtful", "not sure yet: 7 → 6"),
        (0.99, "ok", "not sure yet: 7 → 6"),
    ],
)
def test_quick_searches_one_visited_level_apart_show_no_difference(
    confidence: float, quality: Literal["ok", "doubtful"], said: str
) -> None:
    """A repeat could end one agent away, however sure a search is."""
    before, after = (
        quick_search(id, agents, confidence=confidence, quality=quality, flags=flags)
        for id, agents, flags in (("20261115-014455-3f9a", 7, "--parallel 4"), ("20261115-020000-aaaa", 6, "-np 5"))
    )
    pair = compare_pair(before, after)
    lines = {line.name: line.text for line in answer_lines(pair)}
    assert lines["Agents"] == pair.sentence == said
    assert pair.verdict == "not sure yet" and pair_code(pair) == "unsure"
    assert lines["How sure"] == "only 1 agent apart; two searches of the same server may differ by 1"
    assert lines["Try next"] == "keep the change or take it back: no difference in agents shows"
    assert list(lines) == ["Agents", "Changed", "How sure", "Both at 6", "Try next"]


@pytest.mark.parametrize(
    ("after", "disturbed", "said"),
    [
        (5, "", "not sure yet: 4 → 5"),
        (9, "", "not sure yet: 4 → 9; neither number is reliable"),
        (9, "the host was busy", "not sure yet: 4 → 9 or more; neither number is reliable"),
        (4, "", "same: 4 → 4"),
    ],
)
def test_where_nothing_is_known_to_have_changed_a_difference_is_scatter(after: int, disturbed: str, said: str) -> None:
    ids = ("20261115-014455-3f9a", "20261115-020000-aaaa")
    pair = compare_pair(quick_search(ids[0], 4), quick_search(ids[1], after, disturbed=disturbed))
    assert pair.sentence.startswith(said) and pair.verdict == ("same" if after == 4 else "not sure yet")
    text = paint([pair_answer(pair, {})])
    assert "probably" not in text and "\nChanged      no known change since the run of " in text
    end = {
        5: "only 1 agent apart; two searches of the same server may differ by 1",
        9: "5 agents apart; two searches of the same server may differ by 1",
    }
    assert end.get(after, "two searches of the same server may differ by 1") in " ".join(text.split())
    assert compared_text(pair, "").count("known change") == 1, "it is said once"
    unknown = [
        msgspec.structs.replace(quick_search(id, c, flags=""), servers=()) for id, c in zip(ids, (4, 9), strict=True)
    ]
    assert compare_pair(*unknown).verdict == "more agents", "flags that are not known may have changed"


def test_after_a_busy_host_any_number_more_is_possible() -> None:
    """A disturbed baseline has no upper end, so that no later one is above it; a disturbed later one may be."""
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")

    def compared(first: str, second: str) -> dict[str, str]:
        sides = (
            quick_search(id, agents, flags=flags, disturbed=why)
            for id, agents, flags, why in (
                ("20261115-014455-3f9a", 5, "--parallel 2", first), ("20261115-020000-aaaa", 9, "--parallel 4", second),
            )
        )  # fmt: skip
        before, after = (msgspec.structs.replace(side, quality=(busy,)) for side in sides)
        return {line.name: line.text for line in answer_lines(compare_pair(before, after))}

    lines = compared("the host was busy", "the host was busy")
    assert lines["Agents"] == "not sure yet: 5 or more before, 9 or more now"
    assert lines["Doubt"] == "the host was busy in both runs"
    assert lines["How sure"].startswith("neither search found an upper limit: no comparison until the host is quiet")
    lines = compared("", "the host was busy")
    assert lines["Agents"] == "not sure yet: 5 → 9 or more"
    assert lines["Doubt"] == "the host was busy in both runs" and "busy" not in lines["How sure"]
    assert lines["How sure"].startswith("4 agents apart; two searches of the same server may differ by 1")


@pytest.mark.parametrize(
    ("busy", "which", "advice"),
    [
        (
            (True, False), "the earlier run",
            "repeat the earlier run with --parallel 2 when the host is quiet (about 60 s); restart with it, then press "
            "R",
        ),
        ((False, True), "the later run", "R: repeat the later run when the host is quiet (about 60 s)"),
        (
            (True, True), "both runs",
            "R: repeat the later run when the host is quiet (about 60 s)",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_it_is_said_which_run_was_disturbed_and_how_to_repeat_it(
    busy: tuple[bool, bool], which: str, advice: str, swapped: bool
) -> None:
    line = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    sides = [
        msgspec.structs.replace(quick_search(id, agents, flags=flags), quality=(line,) if is_busy else ())
        for id, agents, flags, is_busy in (
            ("20261115-014455-3f9a", 5, "--parallel 2", busy[0]), ("20261115-020000-aaaa", 9, "--parallel 4", busy[1]),
        )
    ]  # fmt: skip
    pair = compare_pair(*(reversed(sides) if swapped else sides))
    lines = {line.name: line.text for line in answer_lines(pair, in_app=True)}
    assert f"the host was busy in {which}" in lines["Doubt"] and lines["Try next"] == advice
    assert " R" not in lines["How sure"], "what to do is said once"


def test_a_session_in_doubt_between_both_is_named_as_left_out() -> None:
    line = QualityLine(code="server_restart", name="server", value="1", state="doubtful", sentence="")
    before, between, after = (
        quick_search(id, agents, flags=flags)
        for id, agents, flags in (
            ("20261115-014455-3f9a", 5, "--parallel 2"), ("20261115-015000-bbbb", 6, "--parallel 4"),
            ("20261115-020000-aaaa", 9, "--parallel 4"),
        )
    )  # fmt: skip
    at = local_time(between.session.created, "%H:%M")
    busy = msgspec.structs.replace(between, quality=(line,))
    changed = {
        name: dict(line[:2] for line in answer_lines(compare_pair(before, after, history=history)))["Changed"]
        for name, history in (("busy", [busy]), ("quiet", [between]))
    }
    assert changed["quiet"] == f"--parallel 2 → 4 since the run of {at}"
    assert changed["busy"] == f"{changed['quiet']}; the run of {at} is left out: the server restarted"
    pair = compare_pair(before, after, history=[busy])
    assert compared_text(pair, "").endswith(f"the run of {at} is left out: the server restarted")


def search(id: str, slots: int, answer: Answer, tps: float, runs: int = 1) -> Summary:
    """A search for the capacity that ran its one level so many times."""
    measured = [level(4, tps=tps, runs=[tps] * runs, n=34, out_tps_steady_hw=0.002 * tps)]
    found = summary(measured, id, server_flags=f"--parallel {slots}", plan=Plan(goal="capacity", max_tokens=64))
    return msgspec.structs.replace(found, answer=answer)


def test_a_comparison_of_searches_asks_for_no_runs_and_ends_with_one_step() -> None:
    before = search("20261115-014455-3f9a", 2, answered(5, 4, 6), 100, runs=3)
    overlapping, apart = (
        compare_pair(before, search("20261115-020000-aaaa", 4, answer, 181.5))
        for answer in (answered(8, 2, 9), answered(8, 7, 9))
    )
    for pair in (overlapping, apart):
        text = paint([pair_answer(pair, {}), *pair_blocks(pair)])
        assert "runs of each" not in text and "swarmtui ab" not in text, text
        # One step makes it surer, and it is not about the runs of a level: a search chooses these itself.
        assert "--runs" not in text
        assert "△ +82 %" in text and "| verdict" not in text
    assert "△ +82 % |" in paint([level_table([level(4, tps=181.5)], baseline=overlapping)])
    shell, app = (dict(line[:2] for line in answer_lines(overlapping, in_app=in_app)) for in_app in (False, True))
    assert shell["Agents"] == "not sure yet: 5 (4–6) → 8 (2–9)"
    assert (
        shell["How sure"] == app["How sure"] == "only 3 agents apart; two searches of the same server may differ by 7"
    )
    step = "a surer search of this server, then of one with --parallel 2, may tell them apart (some minutes"
    assert shell["Try next"].startswith(f"{step} each): swarmtui capacity http")
    assert shell["Try next"].endswith(" --max-tokens 64")
    assert app["Try next"] == f"N: {step} each)"
    assert dict(line[:2] for line in answer_lines(apart))["How sure"] == (
        "3 agents apart; two searches of the same server may differ by 2"
    )


def test_after_the_same_number_nobody_is_asked_to_measure_again() -> None:
    ids = [f"20261115-01{minute}00-aaaa" for minute in range(10, 16)]
    before = [quick_search(id, 20, flags="--parallel 2") for id in ids[:3]]
    after = [quick_search(id, 20) for id in ids[3:]]
    first, last = compare_pair(before[2], after[0]), compare_pair(before[2], after[2], history=before[:2] + after[:2])
    for pair in (first, last):
        assert pair.verdict == "same"
        for in_app in (True, False):
            lines = dict(x[:2] for x in answer_lines(pair, in_app=in_app))
            assert lines["Try next"] == "keep --parallel 4 or go back to --parallel 2: no difference in agents shows"
            assert "R:" not in str(lines) and "swarmtui" not in str(lines)


def test_the_output_of_two_searches_is_that_of_the_largest_level_that_both_kept() -> None:
    """The level is named, after everything that answers a question."""
    before, after = (
        msgspec.structs.replace(
            summary([level(c, tps=tps * c, ttft=0.2) for c in levels], id, server_flags=f"--parallel {slots}"),
            answer=msgspec.structs.replace(
                answered(agents, agents, agents),
                at_capacity=AnswerPoint(c=agents, ttft_s=0.2, per_stream_tps=tps, out_tps=tps * agents),
            ),
        )
        for id, slots, agents, tps, levels in (
            ("20261115-014455-3f9a", 4, 15, 10, (1, 4, 8, 12, 15, 16, 20)),
            ("20261115-020000-aaaa", 8, 20, 12, (1, 4, 8, 12, 16, 20, 21)),
        )
    )
    for a, b in ((before, after), (after, before)):
        assert compare_pair(a, b).headline == (12, None)
    lines = {line.name: line.text for line in answer_lines(compare_pair(before, after))}
    assert lines["Both at 12"].startswith("120 → 144 tok/s in total (+20 %); first token 200 → 200 ms")
    assert list(lines)[-1] == "Both at 12"


def searched(
    id: str, flags: str, agents: int, tps: float, stream: float, ttft: float, *, high: int = 0, width: float = 10.0
) -> Summary:
    """A quick search with levels 1 and 8, and one at the number of agents."""
    e2e = Spread(n=20, p50=2 * ttft)
    figures: dict[str, Any] = {"n": 20, "steady_s": 10.0, "out_tps_steady_hw": width, "e2e_s": e2e}
    measured = [level(c, tps=tps, stream=stream, ttft=ttft, **figures) for c in (1, 8, agents)]
    found = summary(measured, id, server_flags=flags, plan=Plan(goal="capacity", budget_s=60.0))
    return msgspec.structs.replace(found, answer=answered(agents, agents, high or agents))


def test_until_a_surer_search_decides_the_side_with_the_shorter_answers_is_used() -> None:
    before = searched("20261115-010000-aaaa", "--parallel 2", 12, 800.0, 400.0, 1.0, high=20)

    def advised(ttft: float) -> str:
        after = searched("20261115-020000-aaaa", "--parallel 4", 13, 800.0, 200.0, ttft, high=20)
        back = msgspec.structs.replace(before.session, id="20261115-030000-aaaa")
        step, other = (
            compare_pair(*sides).next[0]
            for sides in ((before, after), (after, msgspec.structs.replace(before, session=back)))
        )
        assert step.sentence == other.sentence or step.code != "meanwhile"
        return step.sentence.partition("until then ")[2] if step.code == "meanwhile" else ""

    assert advised(2.0) == "use --parallel 2, as a whole answer takes 2.00 s instead of 4.00 s"
    assert advised(0.4) == "use --parallel 4, as a whole answer takes 800 ms instead of 2.00 s"
    assert advised(1.3) == "", "as few requests show no smaller change"


def test_one_agent_alone_is_faster_only_by_more_than_both_rates_vary() -> None:

    def noted(widths: tuple[float, float]) -> list[str]:
        ids = ("20261115-010000-aaaa", "20261115-020000-aaaa")
        sides = zip(ids, (100.0, 235.0), widths, strict=True)
        pair = compare_pair(
            *(searched(id, "--parallel 2", 12, tps, 400.0, 1.0, width=width) for id, tps, width in sides)
        )
        return [note.text for note in pair.notes if note.code == "machine_changed"]

    assert noted((90.0, 150.0)) == [] == noted((10.0, 150.0))
    assert (
        noted((50.0, 100.0))
        == noted((10.0, 10.0))
        == ["one agent alone is 135 % faster now, which other slots do not explain: this machine varies"]
    )


def test_figures_of_one_load_have_bars_that_show_what_is_better() -> None:
    before = searched("20261115-010000-aaaa", "--parallel 2", 12, 800.0, 400.0, 1.0)
    pair = compare_pair(before, searched("20261115-020000-aaaa", "--parallel 4", 14, 900.0, 200.0, 0.6))
    (output,) = [row for row in pair.rows if row.leads and row.c == 8]
    assert (output.before, output.after) == (800.0, 900.0) and pair.headline == (8, None)
    lines = {line.name: line.text for line in answer_lines(pair)}
    assert lines["Both at 8"] == (
        "800 → 900 tok/s in total (+12 %); first token 1.00 s → 600 ms; each writes 400 → 200 tok/s (likely "
        "−50 %); a whole answer 2.00 → 1.20 s"
    )
    # In the app a table shows all of this.
    app = {line.name: line.text for line in answer_lines(pair, in_app=True)}
    assert app["Price"] and "Both at 8" not in app
    figures, levels = change_tables(pair)
    assert "± %" not in paint([figures, levels]), "a search has no intervals"
    assert figures.title == "Change with 8 agents on both" and levels.title.startswith("Change of output tok/s")
    shown = {row[0].text: [cell.text for cell in row[1:]] for row in figures.rows}
    assert list(shown) == ["output tok/s", "per agent", "first token", "whole answer"]
    assert shown["first token"][:2] == ["1.00 s", "600 ms"]
    worse = [name for name, (*_, bar) in shown.items() if bar.index("●") < bar.index("│")]
    assert worse == ["per agent"], "fewer milliseconds are better"


def test_the_change_of_a_level_with_too_few_requests_has_no_bar() -> None:
    """Nine requests gave the longest bar of all, +91 %."""
    before = searched("20261115-010000-aaaa", "--parallel 2", 12, 800.0, 400.0, 1.0)
    few = msgspec.structs.replace(before.levels[0], out_tps_steady_hw=None)
    before = msgspec.structs.replace(before, levels=(few, *before.levels[1:]))
    pair = compare_pair(before, searched("20261115-020000-aaaa", "--parallel 4", 12, 900.0, 200.0, 0.6))
    _, levels = change_tables(pair)
    assert [row[0].text for row in levels.rows] == ["8", "12"] and "Left out: levels with too few" in levels.note


@pytest.mark.parametrize(
    ("stream", "ttft", "signs", "price"),
    [
        (190.0, 1.0, ("▽", "?"), "each agent writes 400 → 190 tok/s (likely −52 %) with 8 agents"),
        # As few requests show no smaller change.
        (
            290.0, 0.7, ("?", "?"),
            "each agent writes 400 → 290 tok/s (? −28 %) with 8 agents, but a whole answer takes 2.00 → 1.40 s "
            "(? −30 %)",
        ),
        (
            190.0, 0.4, ("▽", "△"),
            "each agent writes 400 → 190 tok/s (likely −52 %) with 8 agents, but a whole answer takes 2.00 s → "
            "800 ms (likely −60 %)",
        ),
    ],
)  # fmt: skip
def test_a_price_is_as_sure_as_the_bars(stream: float, ttft: float, signs: tuple[str, str], price: str) -> None:
    before = searched("20261115-010000-aaaa", "--parallel 2", 12, 800.0, 400.0, 1.0)
    pair = compare_pair(before, searched("20261115-020000-aaaa", "--parallel 4", 14, 900.0, stream, ttft))
    assert {line.name: line.text for line in answer_lines(pair, in_app=True)}["Price"] == price
    shown = {row[0].text: row[3].text for row in change_tables(pair)[0].rows}
    for name, sign in zip(("per agent", "whole answer"), signs, strict=True):
        assert shown[name].startswith(sign)


@pytest.mark.parametrize(
    ("budget_s", "state", "command"),
    [(60.0, "doubtful", "quick"), (60.0, "ok", "quick"), (None, "doubtful", "capacity")],
)
def test_a_search_is_repeated_as_it_was(budget_s: float | None, state: Literal["ok", "doubtful"], command: str) -> None:
    found = search("20261115-014455-3f9a", 2, answered(5, 4, 6), 100)
    plan = msgspec.structs.replace(found.session.plan, budget_s=budget_s)
    line = QualityLine(code="host_pressure", name="host CPU", state=state, value="", sentence="")
    session = msgspec.structs.replace(found.session, plan=plan)
    found = msgspec.structs.replace(found, session=session, quality=(line,))
    assert command_again(found).startswith(f"swarmtui {command} http")


def test_the_command_of_a_search_names_the_file_of_its_workload() -> None:
    found = search("20261115-014455-3f9a", 2, answered(5, 4, 6), 100)
    session = msgspec.structs.replace(found.session, workload="mine", workload_file="/home/me/my work.toml")
    assert " --workload '/home/me/my work.toml'" in command_again(msgspec.structs.replace(found, session=session))


def test_the_advice_is_that_of_the_newer_session_with_either_baseline() -> None:
    steps = [NextStep(code="slots", sentence=f"--parallel {slots}") for slots in (4, 8)]
    older, newer = (
        search(id, slots, msgspec.structs.replace(answered(agents, agents, agents), next=(step,)), 100)
        for id, slots, agents, step in (
            ("20261115-014455-3f9a", 2, 5, steps[0]), ("20261115-020000-aaaa", 4, 9, steps[1]),
        )
    )  # fmt: skip
    assert compare_pair(older, newer).next == compare_pair(newer, older).next == (steps[1],)


def test_other_slos_and_sessions_without_one_are_not_compared() -> None:
    assert compare_agents(answered(8, 8, 9, "ttft_p90=1s"), answered(8, 8, 9)) is None
    assert compare_agents(None, answered(8, 8, 9)) is None


def test_the_effect_of_a_flag_is_one_verdict_with_its_doubts_once() -> None:
    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    before, after = (
        msgspec.structs.replace(
            summary([level(1, tps=20), level(4, tps=40)], id, server_flags=flags), answer=answer, quality=(busy,)
        )
        for id, flags, answer in (
            ("20261115-014455-3f9a", "--parallel 2", answered(12, 3, 15)),
            ("20261115-020000-aaaa", "--parallel 4", answered(0, 0, 0)),
        )
    )
    found = compare_with_baseline(before, after)
    assert found.effect == (
        "not sure yet: 12 → 0; the host was busy in both runs; 12 agents apart; "
        "two searches of the same server may differ by 10"
    )
    assert (found.what, found.verdict) == ("--parallel 2 → 4", "not sure yet")
    row = paint(log_blocks([found]))
    assert "12 → 0 agents" in row and "? not sure yet" in row and "▼" not in row


def test_the_list_of_sessions_has_the_sign_of_the_comparison_and_says_it_once() -> None:
    before = search("20261115-014455-3f9a", 2, answered(5, 4, 6), 100)

    def listed(after: Answer, *quality: QualityLine) -> str:
        later = msgspec.structs.replace(search("20261115-020000-aaaa", 4, after, 181.5), quality=quality)
        pair, change = compare_pair(before, later), compare_with_baseline(before, later)
        row = ListRow(SessionRow(id=change.after, model="m", workload="coding", levels=(4,)))
        cell = session_table([row], {}, ("effect",), effects={change.after: change}).rows[0][0]
        assert cell.code == pair_code(pair) and answer_lines(pair)[0].signed.startswith(cell.text[:2])
        return cell.text

    busy = QualityLine(code="host_pressure", name="host", value="90 %", state="doubtful", sentence="")
    assert listed(answered(12, 10, 13)) == "▲ 5 → 12 agents"
    assert listed(answered(12, 10, 13), busy) == "? 5 → 12 agents"
    assert listed(answered(8, 2, 9)) == "? 5 (4–6) → 8 (2–9) agents"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"agents": 5}, "5 agents"),
        ({"agents": 1}, "1 agent"),
        ({"agents": 5, "doubtful": True}, "? 5 agents"),
        ({"agents": 5, "agents_open": True, "doubtful": True}, "5+ agents"),
        ({"agents": 0, "agents_open": True, "doubtful": True}, "not known"),
        ({"best_c": 4, "best_out_tps": 283.0, "levels": (1, 4), "doubtful": True}, "? best C=4: 283 tok/s"),
    ],
)
def test_the_list_of_sessions_has_the_doubt_of_the_headline(row: dict[str, Any], said: str) -> None:
    listed = SessionRow(id="20261115-014455-3f9a", model="m", workload="coding", **row)
    (cell,) = session_table([ListRow(listed)], {}, ("answer",)).rows[0]
    assert (cell.text, cell.code) == (said, "unknown" if listed.doubtful else None)


def test_an_interval_that_tells_nothing_is_not_shown() -> None:
    assert interval_text(Interval(middle=0.0, low=-0.997, high=449.85), " … ") == "not known"
    assert interval_text(Interval(middle=0.15, low=0.1, high=0.2), " … ") == "+10 % … +20 %"


def test_a_search_that_was_stopped_is_not_compared_as_if_it_had_ended() -> None:
    before, after = (
        quick_search(id, agents, flags=flags)
        for id, agents, flags in (
            ("20261115-014455-3f9a", 5, "--parallel 2"), ("20261115-020000-aaaa", 9, "--parallel 4"),
        )
    )  # fmt: skip
    assert compare_pair(before, after).verdict == "more agents"
    pair = compare_pair(before, msgspec.structs.replace(after, state="stopped"))
    assert pair.verdict == "not sure yet" and pair_code(pair) == "unsure"
    assert "; the search was stopped before its end in the later run" in pair.sentence
    app = dict(line[:2] for line in answer_lines(pair, in_app=True))
    assert app["Try next"] == "R: repeat the later run (about 60 s)"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_that_is_not_sure_to_help_is_decided_before_the_next_flag(swapped: bool) -> None:
    more = NextStep(
        code="more_slots", sentence="--parallel 8: more agents start at once", command="--parallel 8",
        forecast=SlotsForecast(setting="--parallel 8", slots=8),
    )  # fmt: skip
    sides = []
    for id, agents, flags in (
        ("20261115-014455-3f9a", 12, "--parallel 2"), ("20261115-020000-aaaa", 13, "--parallel 4"),
    ):  # fmt: skip
        found = quick_search(id, agents, flags=flags)
        assert found.answer is not None
        sides.append(msgspec.structs.replace(found, answer=msgspec.structs.replace(found.answer, next=(more,))))
    pair = compare_pair(*(reversed(sides) if swapped else sides))
    assert pair.verdict == "not sure yet" and [step.code for step in pair.next] == ["no_difference"]


def test_after_a_run_that_is_to_be_repeated_no_next_flag_is_advised() -> None:
    """It is not known yet whether the last one helped."""
    more = NextStep(
        code="more_slots", sentence="--parallel 8: more agents start at once", command="--parallel 8",
        forecast=SlotsForecast(setting="--parallel 8", slots=8),
    )  # fmt: skip
    busy = QualityLine(code="host_steal", name="steal", value="22 %", state="doubtful", sentence="")
    before = quick_search("20261115-014455-3f9a", 12, flags="--parallel 2")
    found = quick_search("20261115-020000-aaaa", 13, flags="--parallel 4", disturbed="it was busy")
    assert found.answer is not None
    answer = msgspec.structs.replace(found.answer, next=(more,))
    pair = compare_pair(before, msgspec.structs.replace(found, answer=answer, quality=(busy,)))
    assert [step.code for step in pair.next] == ["repeat_run"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_for_the_worse_is_taken_back(swapped: bool) -> None:
    sides = [
        quick_search(id, agents, flags=flags)
        for id, agents, flags in (
            ("20261115-014455-3f9a", 20, "--ctx-size 8192"), ("20261115-020000-aaaa", 8, "--ctx-size 65536"),
        )
    ]  # fmt: skip
    pair = compare_pair(*(reversed(sides) if swapped else sides))
    assert pair.next[0].sentence == "go back to --ctx-size 8192: it had 20 agents instead of 8"


def test_first_tokens_of_searched_levels_are_those_beside_their_verdicts() -> None:
    """Unless most of the judged ones were still awaited: then those that came are compared."""
    judged, awaited = Spread(n=17, min=1.5, p50=1.7), Spread(n=17, min=1.9)
    before, after = (
        summary([msgspec.structs.replace(level(c, tps=tps, ttft=1.4), judged_ttft_s=of) for c, of in levels], id)
        for id, tps, levels in (
            ("20261115-014455-3f9a", 100, ((4, judged), (8, judged))),
            ("20261115-020000-aaaa", 120, ((4, judged), (8, awaited))),
        )
    )
    rows = {row.c: (row.before, row.after) for row in compare_pair(before, after).rows if row.figure == "ttft_s"}
    assert rows == {4: (1.7, 1.7), 8: (1.4, 1.4)}


@pytest.mark.parametrize(("output", "said"), [(820.0, True), (1100.0, False)])
def test_more_slots_with_as_much_output_are_said_to_share_it(output: float, said: bool) -> None:
    """The numbers alone invite still more slots."""
    before, after = (
        msgspec.structs.replace(
            searched(id, f"--parallel {slots}", agents, tps, 400.0, 1.0, width=20.0),
            scaling=Scaling(slots=Slots(per_replica=slots)),
        )
        for id, slots, agents, tps in (
            ("20261115-010000-aaaa", 2, 12, 800.0), ("20261115-020000-aaaa", 4, 14, output),
        )
    )  # fmt: skip
    lines = {line.name: line.text for line in answer_lines(compare_pair(before, after))}
    shared = "4 slots showed no more output than 2 (800 → 820 tok/s with 8 agents): they share it"
    assert (lines.get("Note") == shared) is said
