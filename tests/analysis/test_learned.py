"""After a change of the slots, advice that failed is replaced."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.answer.learned import find_slots_change, learned_steps
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep, SlotsForecast
from swarmtui.model.findings import Scaling, Slots
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import QualityLine
from tests.analysis.level_builders import level, summary

SAID = AnswerSentence(code="capacity", sentence="")
IDS = ("20261115-014455-3f9a", "20261115-020000-aaaa")


def more_slots(slots: int, low: int | None, high: int | None) -> NextStep:
    forecast = SlotsForecast(
        setting=f"--parallel {slots}", slots=slots, agents_low=low, agents_high=high, each_tps=104.0, shared_tps=52.0
    )
    said = f"--parallel {slots}: more agents; if the total does not grow, about 52 each"
    return NextStep(code="more_slots_agents", sentence=said, command=f"--parallel {slots}", forecast=forecast)


def session(
    id: str, slots: int, agents: int, tps: float, *steps: NextStep, flags: str = "", doubts: str = ""
) -> Summary:
    answer = Answer(
        headline=SAID, limit=SAID, agents=agents, low=agents, high=agents, slo="ttft_p90=2s", confidence=0.8,
        at_capacity=AnswerPoint(c=agents, ttft_s=1.0, per_stream_tps=tps / slots, out_tps=tps, half_width=0.02),
        next=steps, doubts=doubts,
    )  # fmt: skip
    found = summary([level(1, tps=200), level(agents, tps=tps)], id, server_flags=flags or f"--parallel {slots}")
    return msgspec.structs.replace(found, answer=answer, scaling=Scaling(slots=Slots(per_replica=slots)))


BEFORE = session(IDS[0], 4, 5, 805.0, more_slots(8, 6, 10))


@pytest.mark.parametrize(
    "after",
    [
        session(IDS[1], 8, 9, 802.0, flags="--parallel 8 --flash-attn on"),
        session(IDS[1], 8, 9, 802.0, doubts="the host was busy"),
    ],
)
def test_another_flag_or_a_doubtful_run_teaches_nothing(after: Summary) -> None:
    assert find_slots_change(BEFORE, after) is None


@pytest.mark.parametrize(
    ("slots", "code", "known"), [(8, "host_pressure", True), (8, "token_counts", False), (2, "host_pressure", False)]
)
def test_what_slowed_the_earlier_server_down_leaves_true_that_more_slots_gave_no_more(
    slots: int, code: str, known: bool
) -> None:
    line = QualityLine(name=code, code=code, state="doubtful", value="", sentence="")
    answer = msgspec.structs.replace(BEFORE.answer, doubts="it was busy") if BEFORE.answer else None
    before = msgspec.structs.replace(BEFORE, answer=answer, quality=(line,))
    assert (find_slots_change(before, session(IDS[1], slots, 5, 802.0)) is not None) is known


def test_after_more_slots_without_more_output_the_total_is_known_not_to_grow() -> None:
    """More agents fit, but they share what there is: that is no condition any more."""
    pair = compare_pair(BEFORE, session(IDS[1], 8, 9, 802.0, more_slots(16, None, 14)))
    (step,) = pair.next
    assert step.sentence == (
        "--parallel 16: up to 14 agents, each writes about 52 tok/s instead of "
        "104 (prediction), as 8 slots gave no more output than 4 (805 tok/s with 5 agents, 802 with 9)"
    )
    assert step.command == "--parallel 16"
    assert compare_pair(session(IDS[1], 8, 9, 802.0, more_slots(16, None, 14)), BEFORE).next == pair.next


def test_what_brought_neither_output_nor_agents_is_not_advised_again() -> None:
    after = session(IDS[1], 8, 5, 802.0, more_slots(16, None, 14))
    steps = compare_pair(BEFORE, after).next
    assert [step.code for step in steps] == ["no_difference", "throughput"]
    assert steps[0].sentence == "keep --parallel 8 or go back to --parallel 4: no difference in agents shows"
    assert steps[1].sentence == ("a smaller model, or weights of fewer bits: the server gives about 802 tok/s in total")
    other = NextStep(code="kv_cache", sentence="the KV cache is full")
    after = session(IDS[1], 8, 5, 802.0, more_slots(16, None, 14), other)
    assert [step.code for step in compare_pair(BEFORE, after).next] == ["no_difference", "kv_cache"]


def test_what_brought_output_but_no_agents_is_not_advised_again() -> None:
    """The number of agents is what a search asks for; one for another SLO says nothing about it."""
    after = session(IDS[1], 8, 5, 1000.0, more_slots(16, None, 14))
    (step,) = compare_pair(BEFORE, after).next
    assert (step.code, step.command) == ("no_difference", "")
    assert after.answer is not None
    looser = msgspec.structs.replace(after, answer=msgspec.structs.replace(after.answer, slo="ttft_p90=9s"))
    assert compare_pair(BEFORE, looser).next == after.answer.next


def test_slots_that_brought_output_are_advised_again() -> None:
    after = session(IDS[1], 8, 9, 1400.0, more_slots(16, None, 14))
    change = find_slots_change(BEFORE, after)
    assert change is not None and after.answer is not None and learned_steps(change) == after.answer.next


def test_fewer_slots_that_turned_out_worse_are_taken_back_with_what_that_costs() -> None:
    after = session(IDS[1], 4, 5, 805.0, more_slots(8, 6, 10))
    change = find_slots_change(session(IDS[0], 8, 9, 802.0), after)
    assert change is not None
    (said,) = learned_steps(change)
    assert (said.code, said.command) == ("slots_back", "--parallel 8")
    assert said.sentence == (
        "go back to --parallel 8: it had 9 agents and 802 tok/s in total, 100 tok/s each while it writes, "
        "instead of 201"
    )


def test_more_slots_are_not_advised_if_fewer_are_no_worse() -> None:
    change = find_slots_change(session(IDS[0], 8, 5, 802.0), session(IDS[1], 4, 5, 805.0, more_slots(8, 6, 10)))
    assert change is not None
    said = learned_steps(change)[0]
    assert (said.code, said.sentence) == (
        "slots_tried",
        "8 slots had no more agents than 4 (5 → 5): more slots do not help so far",
    )
