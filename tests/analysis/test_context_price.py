"""More slots may leave each agent less context: that is a price of them, and may be a flag that was left out."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.compare.sessions import Pair, compare_pair
from swarmtui.model.answer import NextStep, SlotsForecast
from swarmtui.model.findings import Scaling, Slots
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.report.answer import leading_steps, needs_restart
from swarmtui.report.changes import change_tables
from swarmtui.report.comparison import answer_lines, pair_answer, pair_blocks
from swarmtui.report.table import Facts
from swarmtui.report.text import paint
from tests.analysis.level_builders import level, summary
from tests.analysis.test_compare_agents import quick_search

IDS = ("20261115-014455-3f9a", "20261115-020000-aaaa")
ADVICE = "--parallel 4 --ctx-size 32768"


def served(found: Summary, slots: int, context: int, flags: str, advice: str = "") -> Summary:
    """Return a session on a llama.cpp with these flags, with the advice of its result."""
    known = dict(zip(*[iter(flags.split())] * 2, strict=True))
    server = DiscoveredServer(url="http://127.0.0.1:1", engine="llama.cpp", slots=slots, context=context, flags=known)
    step = NextStep(
        code="more_slots", sentence=f"{advice}: more agents start at once", command=advice,
        forecast=SlotsForecast(setting=advice, slots=2 * slots),
    )  # fmt: skip
    assert found.answer is not None
    return msgspec.structs.replace(
        found,
        servers=(server,),
        scaling=Scaling(slots=Slots(per_replica=slots)),
        answer=msgspec.structs.replace(found.answer, next=(step,) if advice else ()),
    )


def restarted(
    flags: str, slots: int, context: int, *, advice: str = ADVICE, agents: int = 26, swapped: bool = False
) -> Pair:
    """Compare a server of two slots that had the advice with one that was restarted with these flags."""
    before = served(quick_search(IDS[0], 22, flags=""), 2, 8192, "--parallel 2", advice)
    after = served(quick_search(IDS[1], agents, flags=""), slots, context, flags, "--parallel 8 --ctx-size 32768")
    return compare_pair(after, before) if swapped else compare_pair(before, after)


def test_an_advised_flag_that_was_left_out_is_the_first_thing_to_try() -> None:
    """More slots would keep the smaller context, so that they are not advised before."""
    pair = restarted("--parallel 4", 4, 4096)
    assert (pair.next[0].code, pair.next[0].command) == ("left_out_flag", "--ctx-size 32768")
    assert all(step.forecast is None for step in pair.next)
    for in_app in (True, False):
        lines = {line.name: line.text for line in answer_lines(pair, in_app=in_app)}
        assert lines["Try next"].startswith(
            "add the advised --ctx-size 32768 for 8,192 tokens of context each again, not 4,096"
        )


def test_after_the_flag_it_is_said_once_what_decides_if_nothing_is_decided() -> None:
    """A key in the app, a command in a shell; nothing after a change that is known to help."""
    surer = "not for more agents); then {}a surer search of each setting decides (some minutes each){}"
    for in_app, said in ((True, surer.format("press N: ", "")), (False, surer.format("", ": swarmtui capacity http"))):
        found = {}
        for agents in (26, 60):
            pair = restarted("--parallel 4", 4, 4096, agents=agents)
            found[agents] = paint([Facts(tuple(line[:2] for line in answer_lines(pair, in_app=in_app)))])
        text = " ".join(found[26].split())
        assert said in text and text.count("surer") == 1 and "surer" not in found[60], found


def test_the_flag_is_added_before_a_run_with_other_flags_is_repeated() -> None:
    """Restart with it, repeat the earlier run, restart with it: nobody knew which flags to use."""
    before = served(quick_search(IDS[0], 22, flags=""), 2, 8192, "--parallel 2", ADVICE)
    after = served(quick_search(IDS[1], 26, flags=""), 4, 4096, "--parallel 4", "--parallel 8 --ctx-size 32768")
    busy = (QualityLine(code="host_pressure", name="host", state="doubtful", value="60 %", sentence=""),)
    for disturbed, steps in (((before,), ["left_out_flag"]), ((after,), ["left_out_flag", "repeat_run"])):
        sides = (msgspec.structs.replace(one, quality=busy) if one in disturbed else one for one in (before, after))
        assert [step.code for step in leading_steps(compare_pair(*sides).next)] == steps


@pytest.mark.parametrize(
    ("flags", "slots", "context", "advice"),
    [
        (ADVICE, 4, 8192, ADVICE),
        # The model has no more context than that: the flag was given.
        (ADVICE, 4, 4096, ADVICE),
        # Other slots than were advised.
        ("--parallel 6", 6, 2730, ADVICE),
        ("--parallel 4", 4, 4096, "--parallel 4"),
        ("--parallel 4", 4, 8192, ADVICE),
        ("--parallel 4", 4, 20_000, ADVICE),
    ],
)
def test_a_flag_that_was_given_or_not_advised_is_not_missed(flags: str, slots: int, context: int, advice: str) -> None:
    assert restarted(flags, slots, context, advice=advice).next[0].code != "left_out_flag"


@pytest.mark.parametrize("agents", [8, 22, 23, 26])
def test_with_the_sides_swapped_no_flag_is_missing(agents: int) -> None:
    """The context grows from the first side to the second."""
    pair = restarted("--parallel 4", 4, 4096, agents=agents, swapped=True)
    assert pair.next and all(step.code != "left_out_flag" for step in pair.next)


def test_a_server_with_fewer_agents_is_taken_back_without_the_flag() -> None:
    assert restarted("--parallel 4", 4, 4096, agents=8).next[0].code == "go_back"


def test_after_a_sweep_the_flag_comes_before_more_runs() -> None:
    """Without an SLO there are no numbers of agents."""
    before, after = (
        served(msgspec.structs.replace(summary([level(2, tps=tps)], id), answer=quick_search(id, 2).answer), *known)
        for id, tps, known in (
            (IDS[0], 100.0, (2, 8192, "--parallel 2", ADVICE)), (IDS[1], 120.0, (4, 4096, "--parallel 4")),
        )
    )  # fmt: skip
    sides = [
        msgspec.structs.replace(one, answer=msgspec.structs.replace(one.answer, agents=None))
        for one in (before, after)
        if one.answer is not None
    ]
    pair = compare_pair(*sides)
    assert pair.agents is None
    assert dict(line[:2] for line in answer_lines(pair))["Try next"].startswith("add the advised --ctx-size 32768")


def test_a_context_that_fell_is_a_price_and_no_measured_change() -> None:
    pair = restarted("--parallel 4", 4, 4096)
    for in_app in (True, False):
        lines = {line.name: line.text for line in answer_lines(pair, in_app=in_app)}
        assert lines["Price"].endswith("each agent has 8,192 → 4,096 tokens of context")
        assert lines["Changed"].startswith("--parallel 2 → 4 since") and "context" not in lines["Changed"]
    assert all("context" not in row[0].text for table in change_tables(pair) for row in table.rows)
    text = " ".join(paint([pair_answer(pair, {}), *pair_blocks(pair)]).split())
    assert text.count("8,192 → 4,096") == 1 and "also different: context" not in text


def test_a_context_that_grew_is_what_changed() -> None:
    pair = restarted("--parallel 4", 4, 4096, swapped=True)
    lines = {line.name: line.text for line in answer_lines(pair, in_app=True)}
    assert lines["Changed"] == "--parallel 4 → 2, context 4,096 → 8,192" and "context" not in lines.get("Price", "")


def test_the_server_is_restarted_for_the_flag() -> None:
    assert needs_restart(restarted("--parallel 4", 4, 4096).next[0])
