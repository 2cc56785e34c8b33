from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.experiments.advice import Advice, Served, advise
from swarmtui.model.findings import Seats
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import Energy, Trust
from tests.analysis.made_levels import level, summary


def scaled(found: Summary, seats: int | None = None) -> Summary:
    given = Seats(per_replica=seats, reason="flags") if seats else None
    return msgspec.structs.replace(found, scaling=scaling(found.levels, given))


def only(found: tuple[Advice, ...]) -> Advice:
    (one,) = found
    return one


def test_beyond_the_seats_there_is_only_a_queue() -> None:
    levels = [level(2, tps=160, ttft=1.0), level(4, tps=283, ttft=1.5), level(8, tps=282, ttft=13.4)]
    found = only(advise(scaled(summary(levels), 4)))
    assert found.topic == "queue"
    assert found.sentence.startswith("C beyond 4 only queues")
    assert found.evidence == "C=8 against C=4: −0 % output tok/s, TTFT ×8.9; 4 seats"


def test_seats_that_bring_more_are_no_queue() -> None:
    levels = [level(4, tps=283, ttft=1.5), level(8, tps=400, ttft=1.6)]
    assert advise(scaled(summary(levels), 4)) == ()
    assert advise(scaled(summary([level(2, tps=100, ttft=1.0), level(8, tps=100, ttft=9.0)]), 4)) == ()


def test_preemptions_come_before_a_full_cache() -> None:
    made = summary([level(8, tps=100)])
    found = only(advise(made, {4: Served(kv_use=0.6), 8: Served(kv_use=0.99, preemptions=12.0)}))
    assert found.evidence == "C=8: 12 preemptions, KV cache up to 99 % full"
    assert only(advise(made, {8: Served(kv_use=0.99, preemptions=0.0)})).topic == "KV full"
    assert advise(made, {8: Served(kv_use=0.9, preemptions=0.0)}) == ()


def test_a_power_limit_is_told_with_its_share_and_watts() -> None:
    capped = Energy(seconds=9.0, mean_w=349.0, throttled=0.62, throttle=("power cap",))
    found = only(advise(summary([level(4, tps=10), level(8, tps=10, energy=capped)])))
    assert (found.topic, found.evidence) == ("power-capped", "C=8: clocks lowered 62 % of the time, 349 W")
    blink = msgspec.structs.replace(capped, throttled=0.02)
    assert advise(summary([level(8, tps=10, energy=blink)])) == ()


def trust(name: str, state: str, value: str) -> Trust:
    return Trust(name=name, state=state, value=value, sentence="")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "topic"),
    [
        (trust("client CPU", "doubtful", "88 % of a core"), "client-bound"),
        (trust("cold cache", "wrong", "40 % from the cache"), "prefix cache"),
    ],
)
def test_what_makes_figures_wrong_is_told_with_its_value(line: Trust, topic: str) -> None:
    found = only(advise(msgspec.structs.replace(summary([level(4, tps=10)]), trust=(line,))))
    assert found.topic == topic and line.value in found.evidence
    calm = msgspec.structs.replace(line, state="ok")
    assert advise(msgspec.structs.replace(summary([level(4, tps=10)]), trust=(calm,))) == ()


def test_few_accepted_drafts_are_told_at_the_levels_where_they_are_few() -> None:
    good = Served(draft_tokens=1000.0, accepted_tokens=700.0, drafts=200.0)
    bad = Served(draft_tokens=1000.0, accepted_tokens=300.0, drafts=200.0)
    found = only(advise(summary([level(1, tps=10), level(8, tps=10)]), {1: good, 8: bad}))
    assert found.sentence.startswith("few drafts are accepted at C=8:")
    assert found.evidence == "C=8: 30 % accepted of 5 drafted a step"
    assert advise(summary([level(1, tps=10)]), {1: good}) == ()


def stepped(a: float, c: float, seats: int) -> Summary:
    """Levels as a step of a + c·b milliseconds makes them."""
    levels = [level(b, tps=1e3 * b / (a + c * b), tpot=(a + c * b) / 1e3, ttft=0.1) for b in (1, 2, 4, 8, 16, 32)]
    return scaled(summary(levels), seats)


def test_seats_near_the_ceiling_bring_nothing() -> None:
    found = only(advise(stepped(2.0, 5.0, 32)))
    assert found.topic == "seats"
    assert "seats above 7 bring next to nothing" in found.sentence
    assert "a step takes 2 + 5·b ms" in found.evidence
    assert advise(stepped(50.0, 1.0, 32)) == ()


def test_heads_that_cannot_be_shared_out_are_told() -> None:
    made = summary([level(1, tps=10)], server_flags="--tensor-parallel-size 3", tags={"heads": "40"})
    assert "TP=3 does not divide 40 heads" in only(advise(made)).sentence
    assert advise(summary([level(1, tps=10)], server_flags="-tp 4", tags={"heads": "40"})) == ()
    assert advise(summary([level(1, tps=10)], server_flags="-tp 3")) == ()


def test_nothing_measured_gives_no_advice() -> None:
    assert advise(scaled(summary([]))) == ()
