"""What to change: each step with the figures that it is based on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from swarmtui.analysis.answer.answer import answer, next_steps
from swarmtui.analysis.answer.commands import command_again
from swarmtui.analysis.answer.facts import AnswerFacts, Missed
from swarmtui.analysis.answer.slots import add_slots
from swarmtui.analysis.answer.table import rows_said
from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.limits.slo import DEFAULT_SLO, goodput, parse_slo
from swarmtui.model.answer import NextStep
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.findings import Capacity, KvCliff, Slots
from swarmtui.model.plan import LevelKey, Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Summary
from swarmtui.model.session_tags import ModelFacts
from swarmtui.model.telemetry import DiscoveredServer, Energy, QualityLine, ServerState
from tests.analysis.level_builders import level, summary
from tests.analysis.record_builders import BOOT_NS, MS, request


def with_scaling(found: Summary, slots: int | None = None) -> Summary:
    known = Slots(per_replica=slots, reason="flags") if slots else None
    return msgspec.structs.replace(found, scaling=scaling(found.levels, known))


def counted(**counters: Any) -> ServerState:
    return ServerState(engine="vLLM", **counters)


def advise(found: Summary, counters: Mapping[int, ServerState] | None = None) -> tuple[NextStep, ...]:
    """Return the steps that concern the server or the measurement, not what to measure next."""
    steps = answer(found, None, "", counters or {}).next
    return tuple(step for step in steps if not step.command.startswith("swarmtui"))


def only(found: tuple[NextStep, ...]) -> NextStep:
    (one,) = found
    return one


def test_requests_beyond_the_slots_only_queue() -> None:
    levels = [level(2, tps=160, ttft=1.0), level(4, tps=283, ttft=1.5), level(8, tps=282, ttft=13.4)]
    found = only(advise(with_scaling(summary(levels), 4)))
    assert found.code == "queue"
    assert found.sentence.startswith("beyond C=4 requests only queue")
    assert found.evidence == "C=8 compared with C=4: +0 % output tok/s, first token ×8.9 (mean); 4 slots"


def test_throughput_that_grows_beyond_the_slots_is_no_queue() -> None:
    levels = [level(4, tps=283, ttft=1.5), level(8, tps=400, ttft=1.6)]
    assert advise(with_scaling(summary(levels), 4)) == ()


def test_a_cliff_at_the_slots_gives_advice_without_a_level_at_the_slots() -> None:
    found = only(advise(with_scaling(summary([level(2, tps=100, ttft=1.0), level(8, tps=100, ttft=9.0)]), 4)))
    assert (found.code, found.evidence) == ("queue", "C=8: more agents than slots (4)")


def test_preemptions_come_before_a_full_kv_cache() -> None:
    made = summary([level(8, tps=100)])
    found = only(
        advise(
            made,
            {4: counted(kv_use=0.6), 8: counted(kv_use=0.99, preemptions=12.0)},
        )
    )
    assert found.evidence == "C=8: 12 preemptions, KV cache up to 99 % full"
    assert only(advise(made, {8: counted(kv_use=0.99, preemptions=0.0)})).code == "kv_cache"
    assert advise(made, {8: counted(kv_use=0.9, preemptions=0.0)}) == ()


def test_power_limit_is_reported_with_share_and_watts() -> None:
    capped = Energy(seconds=9.0, mean_w=349.0, throttled=0.62, throttle=("power cap",))
    found = only(advise(summary([level(4, tps=10), level(8, tps=10, energy=capped)])))
    assert (found.code, found.evidence) == ("power_limit", "C=8: clocks lowered 62 % of the time, 349 W")
    brief = msgspec.structs.replace(capped, throttled=0.02)
    assert advise(summary([level(8, tps=10, energy=brief)])) == ()


def quality_line(code: str, state: str, value: str) -> QualityLine:
    return QualityLine(code=code, name=code, state=state, value=value, sentence="")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (quality_line("client_cpu", "doubtful", "88 % of a core"), "client_limit"),
        (quality_line("cold_cache", "wrong", "40 % from the cache"), "prefix_cache"),
    ],
)
def test_doubtful_measurement_is_reported_with_its_value(line: QualityLine, code: str) -> None:
    found = only(advise(msgspec.structs.replace(summary([level(4, tps=10)]), quality=(line,))))
    assert found.code == code and line.value in found.evidence
    calm = msgspec.structs.replace(line, state="ok")
    assert advise(msgspec.structs.replace(summary([level(4, tps=10)]), quality=(calm,))) == ()


def test_low_draft_acceptance_is_reported_by_level() -> None:
    good = counted(draft_tokens=1000.0, accepted_tokens=700.0, drafts=200.0)
    bad = counted(draft_tokens=1000.0, accepted_tokens=300.0, drafts=200.0)
    found = only(advise(summary([level(1, tps=10), level(8, tps=10)]), {1: good, 8: bad}))
    assert found.sentence.startswith("few draft tokens are accepted at C=8:")
    assert found.evidence == "C=8: 30 % accepted of 5 drafted per step"
    assert advise(summary([level(1, tps=10)]), {1: good}) == ()


def stepped(a: float, c: float, slots: int) -> Summary:
    """Levels of a server whose step takes a + c·b milliseconds."""
    levels = [level(b, tps=1e3 * b / (a + c * b), tpot=(a + c * b) / 1e3, ttft=0.1) for b in (1, 2, 4, 8, 16, 32)]
    return with_scaling(summary(levels), slots)


def test_slots_near_the_ceiling_add_no_throughput() -> None:
    found = only(advise(stepped(2.0, 5.0, 32)))
    assert found.code == "fewer_slots"
    assert "7 slots would give almost the same tok/s in total" in found.sentence
    assert "a step takes 2 + 5·b ms" in found.evidence
    assert advise(stepped(50.0, 1.0, 32)) == ()


def full_server(second: float, *, half_width: float | None = None, stream: float = 198.0) -> Summary:
    """A server with four slots that gives 790 tok/s with four agents, and `second` with two."""
    rates = ((1, 400.0, 410.0), (2, second, 390.0), (4, 790.0, stream), (8, 795.0, stream))
    levels = [
        level(c, tps=tps, stream=each, ttft=0.1 if c <= 4 else 3.0, out_tps_steady_hw=half_width and half_width * tps)
        for c, tps, each in rates
    ]
    server = DiscoveredServer(url="", engine="llama.cpp", slots=4, flags={"parallel": "4"})
    return with_scaling(msgspec.structs.replace(summary(levels), servers=(server,)), 4)


SEARCHED = AnswerFacts(levels=4, slots=4, agents=4, c=8, slo="a first token within 2 s")


@pytest.mark.parametrize(
    ("second", "half_width", "is_flat"),
    [
        (780.0, None, True), (760.0, 0.001, True), (740.0, 0.001, True), (710.0, 0.001, False), (710.0, 0.1, True),
        (820.0, 0.01, True), (600.0, None, False), (740.0, 0.3, False),
    ],
)  # fmt: skip
def test_throughput_that_does_not_grow_within_its_half_width_is_used_up(
    second: float, half_width: float | None, is_flat: bool
) -> None:
    """A wide interval shows neither."""
    facts = add_slots(SEARCHED, full_server(second, half_width=half_width), parse_slo("ttft_p90=2s"))
    assert facts.flat == ((2, second, 4, 790.0) if is_flat else None)


def test_more_slots_have_a_price_where_the_throughput_is_used_up() -> None:
    facts = add_slots(SEARCHED, full_server(780.0), parse_slo("ttft_p90=2s"))
    (step,) = next_steps(facts)
    assert (step.code, step.command) == ("more_slots_agents", "--parallel 8")
    assert step.sentence == ("--parallel 8: up to 8 agents, each writes about 99 tok/s instead of 198 (prediction)")


@pytest.mark.parametrize(("agents", "level_c"), [(4, 4), (8, 8), (6, 4), (2, 4)])
def test_what_more_slots_cost_is_said_with_the_figures_of_the_capacity(agents: int, level_c: int) -> None:
    """If it is no level, or leaves slots free, they are those of the first level that takes all of them."""
    made = full_server(780.0)
    facts = add_slots(msgspec.structs.replace(SEARCHED, agents=agents, c=9), made, parse_slo("ttft_p90=2s"))
    assert facts.full_tps == {one.c: one.headline_tps for one in made.levels}[level_c]


@pytest.mark.parametrize(
    ("stream", "code", "command"), [(26.0, "more_slots_agents", "--parallel 5"), (22.0, "throughput", "")]
)
def test_slots_that_leave_agents_too_slow_are_not_advised(stream: float, code: str, command: str) -> None:
    """An SLO of 20 tok/s each: shared by more agents, the same total is not enough for them."""
    (step,) = next_steps(add_slots(SEARCHED, full_server(780.0, stream=stream), parse_slo(DEFAULT_SLO)))
    assert (step.code, step.command) == (code, command)


def test_slots_are_advised_up_to_the_contexts_that_fit() -> None:
    kv = KvCliff(pool_tokens=6000, context_tokens=1000.0, predicted=6.0)
    found = Capacity(slo="", agents=4, low=4, high=7, next_c=8, alpha=0.2, visits=4, requests=99, kv=kv)
    facts = add_slots(SEARCHED, msgspec.structs.replace(full_server(780.0), capacity=found), parse_slo("ttft_p90=2s"))
    assert (facts.kv_fits, facts.more_slots, facts.kv_limit) == (6, "--parallel 6", True)
    roomy = msgspec.structs.replace(found, kv=KvCliff(pool_tokens=90_000, context_tokens=1000.0, predicted=90.0))
    facts = add_slots(SEARCHED, msgspec.structs.replace(full_server(780.0), capacity=roomy), parse_slo("ttft_p90=2s"))
    assert (facts.more_slots, facts.kv_limit) == ("--parallel 8", False)


def two_slots(*levels: tuple[int, float, float]) -> Summary:
    """A search on a llama.cpp with two slots of 8,192 tokens each: two levels within them, too few for a fit."""
    made = [level(c, tps=tps, stream=each, ttft=0.1 if c <= 2 else 1.9) for c, tps, each in levels]
    server = DiscoveredServer(
        url="", engine="llama.cpp", slots=2, flags={"parallel": "2"}, context=8192, kv_tokens=16_384
    )
    return with_scaling(msgspec.structs.replace(summary(made), servers=(server,)), 2)


def test_two_slots_say_what_four_bring_if_the_total_does_not_grow() -> None:
    """On a real server, four slots then carried 26 agents, with 1,575 tok/s in total."""
    made = two_slots((1, 1188.0, 1509.0), (2, 1566.0, 925.0), (22, 1362.0, 765.0), (24, 1388.0, 782.0))
    searched = AnswerFacts(levels=4, slots=2, agents=22, c=24, slo="", kv_fits=9)
    (step,) = next_steps(add_slots(searched, made, parse_slo(DEFAULT_SLO)))
    assert (step.code, step.command) == ("more_slots", "--parallel 4 --ctx-size 32768")
    assert step.sentence == (
        "--parallel 4 --ctx-size 32768: up to 24 agents, each writes about 382 tok/s instead of 765 (prediction, if "
        "the total does not grow and memory allows it)"
    )
    assert step.forecast is not None and step.forecast.agents_high is None


def test_slots_are_not_advised_where_two_requests_at_once_bring_hardly_more_than_one() -> None:
    """On a real server with 12 to 18 agents, four slots had no more of them, and each wrote half as fast."""
    made = two_slots((1, 903.0, 1140.0), (2, 959.0, 550.0), (12, 879.0, 492.0), (19, 682.0, 381.0))
    missed = Missed(text="ttft", required=0.9, good=0, n=10, figure="ttft", limit=2.0, percentile=90)
    searched = AnswerFacts(levels=4, slots=2, agents=12, high=18, c=19, slo="", missed=missed)
    facts = add_slots(searched, made, parse_slo(DEFAULT_SLO))
    (step,) = next_steps(facts)
    assert (step.code, step.sentence) == (
        "throughput",
        "a smaller model, or weights of fewer bits: the server gives about 919 tok/s in total, so that "
        "more slots have no more agents",
    )
    assert rows_said("limit", facts)[0].text(facts) == (
        "both slots are taken, and the output hardly grows with more at once "
        "(903 tok/s with 1 agent, 919 with 2 or more)"
    )


def test_tensor_parallel_size_that_does_not_divide_the_heads() -> None:
    made = summary([level(1, tps=10)], server_flags="--tensor-parallel-size 3", model_facts=ModelFacts(heads=40))
    assert "TP=3 does not divide 40 heads" in only(advise(made)).sentence
    assert advise(summary([level(1, tps=10)], server_flags="-tp 4", model_facts=ModelFacts(heads=40))) == ()
    assert advise(summary([level(1, tps=10)], server_flags="-tp 3")) == ()


def test_empty_session_gives_no_advice() -> None:
    assert advise(with_scaling(summary([]))) == ()


@pytest.mark.parametrize(
    ("embedded", "address"), [(False, "http://10.0.0.4:8000"), (True, "'sim:moe-tp1?slots=4&replicas=1'")]
)
def test_a_command_asks_the_same_server_with_the_same_workload_and_slo(embedded: bool, address: str) -> None:
    """An embedded simulator has another address each time."""
    asked = Endpoint(url="http://10.0.0.4:8000", model="m", dialect="chat", engine="simulator", embedded=embedded)
    found = summary(
        [level(1, tps=10), level(2, tps=20)], endpoints=(asked,), workload="chat", plan=Plan(slo="ttft_p90=1s")
    )
    flags = {"preset": "moe-tp1", "slots": "4", "replicas": "1"}
    found = msgspec.structs.replace(found, servers=(DiscoveredServer(url=asked.url, flags=flags),))
    (command,) = (step.command for step in answer(with_scaling(found), None, "", {}).next)
    assert command == f"swarmtui run --find-cliff {address} --workload chat --slo ttft_p90=1s"


def test_no_command_asks_another_server_when_the_address_is_not_known() -> None:
    """A run may end before its simulator has said what it is."""
    asked = Endpoint(url="http://127.0.0.1:40001", model="m", engine="simulator", embedded=True)
    found = with_scaling(summary([level(1, tps=10), level(2, tps=20)], endpoints=(asked,)))
    (step,) = answer(found, None, "", {}).next
    assert step.sentence == "more than 2 agents: tok/s still grew" and not step.command
    assert command_again(found) == ""


def test_answers_without_text_are_named_and_no_slots_are_advised_for_them() -> None:
    """They have no first token, so that they miss its limit: more slots would change nothing."""
    slo = parse_slo("ttft_p90=2s")
    empty = request(0, [], tokens_out=0, t_done_ns=BOOT_NS + MS)
    records = {4: [request(0, [500])] * 30, 10: [request(0, [700])] * 5 + [empty] * 2}
    levels = [level(4, tps=100, ttft=0.5), msgspec.structs.replace(level(10, tps=110, ttft=0.7), n=7, ok=7, empty=2)]
    found = goodput(levels, {(c, None): records[c] for c in records}, slo)
    asked = msgspec.structs.replace(summary(levels), goodput=found, servers=(DiscoveredServer(url="u", slots=4),))
    said = answer(with_scaling(asked), slo, "ttft_p90=2s", {})
    assert said.limit.code == "empty_answers" and "2 of 7 answers had no text" in said.limit.sentence
    assert [step.code for step in said.next] == ["empty_answers"]


def test_a_level_that_the_user_sets_after_a_search_and_that_misses_is_the_reason() -> None:
    """The search ended at 4 agents, still kept; the user went on to 10, which miss the SLO."""
    slo = parse_slo("ttft_p90=2s")
    levels = [level(4, tps=100, ttft=0.5), level(10, tps=110, ttft=3.0)]
    records: dict[LevelKey, list[Record]] = {(4, None): [request(0, [500])] * 60, (10, None): [request(0, [3000])] * 60}
    found = Capacity(slo="ttft_p90=2s", agents=4, low=4, high=None, next_c=None, alpha=0.2, visits=3, requests=60)
    asked = msgspec.structs.replace(summary(levels), capacity=found, goodput=goodput(levels, records, slo))
    said = answer(asked, slo, "ttft_p90=2s", {})
    assert (said.agents, said.high) == (4, 9)
    assert said.limit.sentence.startswith("at 10 agents the first token took 3.0 s (p90)")


@pytest.mark.parametrize(
    ("code", "high", "headline"),
    [
        ("host_pressure", None, "4 agents or more with "),
        ("throttling", None, "4 agents or more with "),
        ("server_stall", None, "4 agents or more with "),
        ("client_lag", None, "4 agents or more with "),
        ("token_counts", 9, "4 agents, perhaps up to 9, with "),
        ("in_flight", 9, "4 agents, perhaps up to 9, with "),
    ],
)
def test_what_makes_a_server_look_slower_leaves_the_number_of_agents_without_an_upper_end(
    code: str, high: int | None, headline: str
) -> None:
    """Levels that were kept in spite of it are kept; one that was missed may only have been disturbed."""
    slo = parse_slo("ttft_p90=2s")
    levels = [level(4, tps=100, ttft=0.5), level(10, tps=110, ttft=3.0)]
    records: dict[LevelKey, list[Record]] = {(4, None): [request(0, [500])] * 60, (10, None): [request(0, [3000])] * 60}
    doubt = quality_line(code, "doubtful", "40 %")
    asked = msgspec.structs.replace(summary(levels), goodput=goodput(levels, records, slo), quality=(doubt,))
    found = answer(asked, slo, "ttft_p90=2s", {})
    assert (found.agents, found.low, found.high, bool(found.disturbed)) == (4, 4, high, high is None)
    assert found.headline.sentence.startswith(headline) and "fewer" not in found.headline.sentence
    seen = "at 10 agents the first token took 3.0 s (p90)"
    why = f"not known: {seen}" if high is None else seen
    assert found.limit.sentence.startswith(why) and (found.limit.code == "not_known" or high is not None)
    nothing = msgspec.structs.replace(asked, goodput=goodput(levels[1:], records, slo), levels=(levels[1],))
    said = answer(nothing, slo, "ttft_p90=2s", {}).headline.code
    assert said == ("agents_not_known" if high is None else "fewer_agents")
