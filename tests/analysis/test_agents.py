"""The search for the most agents within an SLO: its visits, its answer, and the eviction from the KV cache."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmtui.analysis.answer.answer import capacity_headline
from swarmtui.analysis.capacity.agents import capacity, capacity_sentences, hit_texts, room_text
from swarmtui.analysis.capacity.judged_levels import Visit, judge, visit_kept
from swarmtui.analysis.capacity.searched import leave_missed_open, searched_goodput
from swarmtui.analysis.capacity.slo_search import CONFIRMING, MAX_VISITS, next_visit, search_state
from swarmtui.analysis.limits.shares import dispersion, is_kept, least_n
from swarmtui.analysis.limits.slo import SloTally, goodput, parse_slo
from swarmtui.model.findings import Capacity, SearchedLevel, SearchState
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import TraceFigures
from swarmtui.model.telemetry import DiscoveredServer, Energy
from tests.analysis.level_builders import level
from tests.analysis.record_builders import BOOT_NS, MS, request

SLO = parse_slo("ttft_p95=2s,stream_p5=20")
ALPHA = 0.01
GOOD = request(0, [100, 110, 120], tokens_in=1000)
# Far past a limit: runs that are close to it are those of the margins.
LATE = request(0, [5100, 5110, 5120], tokens_in=1000)
SLOW = request(0, [100, 300, 500, 700], tokens_in=1000)


def visit(c: int, good: int, late: int = 0, run: int = 1) -> Visit:
    records = [GOOD] * good + [LATE] * late
    return Visit(c, SLO, [msgspec.structs.replace(record, c=c, run=run) for record in records])


def search(
    truth: int,
    width: float,
    seed: int,
    highest: int = 1024,
    dips: Mapping[int, float] = {},
    differ: float = 0.0,
    quick: bool = False,
) -> tuple[list[Visit], Capacity]:
    """Search a server whose share of good requests falls through 95 % between `truth` and the next C.

    `differ`: by how much of `width` the servers of two visits differ (standard deviation). Some levels have `dips`.
    A quick search ends before the visits that only confirm.
    """
    rng = random.Random(seed)
    visits: list[Visit] = []
    alpha = 0.2 if quick else ALPHA
    while (following := next_visit(visits, SLO, highest, alpha, quick=quick)) is not None:
        if quick and following.step in CONFIRMING:
            break
        c = following.c
        share = 1.0 / (1.0 + math.exp((c - truth - 0.5) / width + rng.gauss(0.0, differ) - math.log(19.0)))
        share = dips.get(c, share)
        found = visit(c, 0)
        for number in range(1, following.requests + 1):
            one = GOOD if rng.random() < share else LATE if rng.random() < 0.5 else SLOW
            found.add(msgspec.structs.replace(one, c=c, run=len(visits)))
            if number.bit_count() == 1 and number >= 4 and visit_kept(found.slo, alpha) is False:
                break
        visits.append(found)
    return visits, capacity(SLO, visits, [], alpha=alpha)


def covers(answer: Capacity, truth: int) -> bool:
    return answer.low <= truth and (answer.high is None or truth <= answer.high)


@pytest.mark.parametrize("truth", [1, 3, 7, 16])
def test_search_finds_the_most_agents_within_one(truth: int) -> None:
    for seed in range(6):
        visits, answer = search(truth, 0.3, seed)
        assert abs(answer.agents - truth) <= 1 and covers(answer, truth)
        assert answer.low <= answer.agents and answer.high is not None and answer.agents <= answer.high
        assert len(visits) <= 20


@pytest.mark.parametrize("truth", [1, 18, 50])
def test_quick_search_decides_with_few_visits(truth: int) -> None:
    found = [search(truth, 0.3, seed, quick=True) for seed in range(20)]
    assert sum(answer.agents <= truth * 1.1 + 1 and truth <= answer.agents * 1.12 + 1 for _, answer in found) >= 18
    assert sum(covers(answer, truth) for _, answer in found) >= 13, "each end is 80 % sure"
    assert sorted(len(visits) for visits, _ in found)[15] <= 2 * truth.bit_length() + 6


@pytest.mark.parametrize(
    ("slots", "climbed"), [(None, [1, 2, 4, 8, 16, 32, 64]), (8, [1, 2, 4, 8, 16, 32, 64]), (48, [1, 4, 16, 48, 96])]
)
def test_quick_search_climbs_faster_up_to_the_slots(slots: int | None, climbed: list[int]) -> None:
    visits: list[Visit] = []
    while len(visits) < len(climbed):
        following = next_visit(visits, SLO, 1024, 0.2, quick=True, slots=slots)
        assert following is not None and following.step == "climb"
        visits.append(visit(following.c, following.requests))
    assert [one.c for one in visits] == climbed


@pytest.mark.parametrize(
    ("near", "asked"),
    [
        ((), [1, 2, 4, 8, 16, 10]),
        ((9, 12), [1, 2, 4, 9, 18, 12]),
        # Far from all that the search visits, or visited already.
        ((6, 30), [1, 2, 4, 8, 16, 10]),
        ((4, 8, 16), [1, 2, 4, 8, 16, 10]),
        # Not at once, and only below what is missed.
        ((13, 18, 19), [1, 2, 4, 8, 18, 10, 13]),
    ],
)
def test_search_visits_levels_of_the_search_before_if_they_are_near(near: tuple[int, ...], asked: list[int]) -> None:
    """What changed is then seen at the same load."""
    visits: list[Visit] = []
    while len(visits) < len(asked):
        following = next_visit(visits, QUICK, 64, 0.2, quick=True, near=near)
        assert following is not None and following.step in ("climb", "bisect")
        visits.append(quick_visit(following.c, 0, 8) if following.c > 15 else quick_visit(following.c, 19))
    assert [one.c for one in visits] == asked


def test_interval_contains_the_truth_if_visits_differ() -> None:
    answers = [search(23, 3.0, seed, differ=0.4)[1] for seed in range(10)]
    assert sum(covers(one, 23) for one in answers) >= 8
    assert abs(sum(one.agents for one in answers) / len(answers) - 23) < 2


@pytest.mark.parametrize("dip", [1, 4, 8])
def test_dip_is_named_and_the_search_goes_on_above_it(dip: int) -> None:
    _, answer = search(32, 0.3, dip, dips={dip: 0.3})
    assert [finding.code for finding in answer.findings] == ["dip"]
    text = answer.findings[0].text
    assert f"C={dip} missed it" in text and f"although C={2 * dip} keeps it" in text
    assert covers(answer, 32) and answer.low > dip


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.floats(0.1, 20.0), st.integers(0, 10**6), st.integers(1, 64), st.floats(0.0, 1.0))
@example(1, 1.0, 0, 4, 1.0)
def test_search_ends_and_its_interval_contains_its_answer(
    truth: int, width: float, seed: int, highest: int, differ: float
) -> None:
    visits, answer = search(truth, width, seed, highest, differ=differ)
    assert len(visits) <= MAX_VISITS and all(1 <= one.c <= highest for one in visits)
    assert answer.low <= answer.agents <= highest
    assert answer.high is None or answer.agents <= answer.high
    # A level that was kept at every visit is within the bounds, unless it was one visit and another may be slower.
    varies = any(finding.code == "runs_vary" for finding in answer.findings)
    for judged in judge(visits, ALPHA):
        if judged.passes and all(is_kept_alone(one) for one in judged.visits):
            assert answer.low >= judged.c or (varies and len(judged.visits) == 1)
    failing = [one for one in judge(visits, ALPHA) if not one.passes and not one.dip]
    if failing and failing[0].c < highest and len(visits) < MAX_VISITS:
        assert any(one.c >= min(1.3 * failing[0].c, highest) for one in failing), "one failing level is not enough"


def is_kept_alone(tally: SloTally) -> bool:
    shares = zip(tally.counts, SLO.conditions, strict=True)
    return all(is_kept(good, n, condition.share, ALPHA) is True for (good, n), condition in shares)


def test_share_is_decided_at_one_percent_or_at_twenty() -> None:
    assert (least_n(0.9, 0.01), least_n(0.9, 0.2)) == (44, 16)
    slo = parse_slo("ttft_p90=2s")
    for alpha, n in ((0.01, 44), (0.2, 16)):
        kept = [judge([Visit(4, slo, [GOOD] * size)], alpha)[0].kept for size in (n - 1, n)]
        assert kept == [None, True]
    quick = capacity(slo, [Visit(4, slo, [GOOD] * 16), Visit(5, slo, [LATE] * 4)], [], alpha=0.2)
    assert (quick.low, quick.high) == (4, 4)
    assert capacity_headline(quick, slo) == "4 agents with a first token within 2 s, for 90 % of requests"


def test_visits_that_differ_make_the_bounds_wider() -> None:
    assert dispersion([(97, 100), (98, 100), (96, 100)]) == 1.0
    assert dispersion([(100, 100), (100, 100), (91, 100)]) == pytest.approx(9.28, abs=0.01)
    both = [visit(4, 90, run=1), visit(4, 60, 30, run=2)]
    (judged,) = judge(both, ALPHA)
    assert judged.kept is None
    answer = capacity(SLO, [visit(2, 90), *both, visit(8, 0, 20)], [], alpha=ALPHA)
    assert (answer.low, answer.high) == (2, 7)
    assert [finding.code for finding in answer.findings] == ["visits_differ"]
    assert "C=4 kept it in one run and missed it in another" in answer.findings[0].text


def test_levels_at_the_border_are_visited_again_at_the_end() -> None:
    visits = [visit(1, 5), visit(2, 5), visit(4, 90), visit(8, 0, 8), visit(16, 0, 8), visit(6, 0, 8), visit(5, 0, 8)]
    following = next_visit(visits, SLO, 64, ALPHA)
    assert following is not None and (following.c, following.step) == (4, "repeat")
    visits.append(visit(4, 90, run=2))
    following = next_visit(visits, SLO, 64, ALPHA)
    assert following is not None and (following.c, following.step) == (5, "repeat")
    assert next_visit([*visits, visit(5, 0, 8, run=2)], SLO, 64, ALPHA) is None
    # A minute later, five agents keep it: the interval includes them, and the search looks above.
    visits.append(visit(5, 90, run=2))
    following = next_visit(visits, SLO, 64, ALPHA)
    answer = capacity(SLO, visits, [], alpha=ALPHA)
    assert (answer.low, answer.high) == (4, 5) and answer.agents in (4, 5)


QUICK = parse_slo("ttft_p90=2s")


def quick_visit(c: int, in_time: int, late: int = 0) -> Visit:
    return Visit(c, QUICK, [GOOD] * in_time + [LATE] * late)


CLIMB = [quick_visit(c, 19) for c in (1, 2, 4, 8, 16, 20)]


def test_quick_search_repeats_the_level_that_was_missed_before_the_answer_a_third_time() -> None:
    visits = [*CLIMB, quick_visit(32, 0, 8), quick_visit(24, 0, 8), quick_visit(22, 19)]
    asked = []
    while (following := next_visit(visits, QUICK, 64, 0.2, quick=True)) is not None:
        asked.append((following.c, following.step))
        visits.append(quick_visit(following.c, 0, 8) if following.c > 22 else quick_visit(following.c, 19))
    assert asked[:2] == [(22, "repeat"), (24, "repeat")]


def test_quick_search_looks_between_a_level_whose_visits_differ_and_the_next_that_is_missed() -> None:
    """The two visits with 24 agents differ: 12 of 20 requests were in time, then 19 of 19."""
    visits = [*CLIMB, quick_visit(32, 0, 14), quick_visit(24, 12, 8), quick_visit(22, 19), quick_visit(24, 19)]
    answer = capacity(QUICK, visits, [], alpha=0.2)
    assert (answer.agents, answer.low, answer.high) == (22, 22, 31)
    following = next_visit(visits, QUICK, 64, 0.2, quick=True)
    assert following is not None and (following.c, following.step) == (22, "repeat"), "the answer first"
    visits.append(quick_visit(22, 19))
    following = next_visit(visits, QUICK, 64, 0.2, quick=True)
    assert following is not None and (following.c, following.step) == (28, "beside")
    visits.append(quick_visit(28, 0, 8))
    following = next_visit(visits, QUICK, 64, 0.2, quick=True)
    assert following is not None and following.c == 26
    visits.append(quick_visit(26, 0, 8))
    answer = capacity(QUICK, visits, [], alpha=0.2)
    assert (answer.agents, answer.low, answer.high) == (22, 22, 25)
    following = next_visit(visits, QUICK, 64, 0.2, quick=True)
    assert following is not None and (following.c, following.step) == (24, "decide"), "a third visit"
    found = next(level for level in search_state(visits, following, 0.2).levels if level.c == 24)
    assert found.state == "unsure" and found.by_visit == ((12, 20), (19, 19))
    assert next_visit([*visits, quick_visit(24, 19)], QUICK, 64, 0.2, quick=True) is None


def test_quick_search_repeats_a_level_that_was_missed_although_the_one_above_is_kept() -> None:
    below = [quick_visit(c, 19) for c in (1, 2, 4, 8, 16)]
    levels = [quick_visit(32, 0, 8), quick_visit(24, 0, 8), quick_visit(18, 0, 8), quick_visit(20, 19)]
    visits = [*below, *levels, quick_visit(22, 0, 8), quick_visit(21, 0, 8)]
    asked = []
    while (following := next_visit(visits, QUICK, 64, 0.2, quick=True)) is not None:
        asked.append((following.c, following.step))
        visits.append(quick_visit(following.c, 0, 8) if following.c > 20 else quick_visit(following.c, 19))
    assert asked[:2] == [(20, "repeat"), (18, "repeat")]


def test_state_of_the_search_has_the_bracket_and_a_word_per_level() -> None:
    visits = [visit(1, 5), visit(2, 0, 8), visit(4, 90), visit(8, 0, 8)]
    found = search_state(visits, next_visit(visits, SLO, 64, ALPHA), ALPHA)
    assert (found.low, found.high, found.visits, found.next_c, found.step) == (4, 8, 4, 16, "check")
    assert [(one.c, one.state, one.good, one.n) for one in found.levels] == [
        (1, "kept", 5, 5), (2, "dip", 0, 8), (4, "kept", 90, 90), (8, "missed", 0, 8),
    ]  # fmt: skip


def test_a_level_that_is_missed_at_a_disturbed_visit_is_open_until_it_is_judged_again() -> None:
    """Doubts come and go: each level has that of its last visit, and what is kept is kept in spite of it."""
    visits = [visit(1, 90), visit(2, 0, 8), visit(4, 90), visit(8, 0, 8), visit(16, 0, 8)]

    def states() -> list[str]:
        return [one.state for one in search_state(visits, None, ALPHA).levels]

    assert states() == ["kept", "dip", "kept", "missed", "missed"]
    for disturbed in (0, 1, 4):
        visits[disturbed].disturbed = True
    assert states() == ["kept", "unsure", "kept", "missed", "unsure"]
    visits.append(visit(16, 0, 8, run=2))
    assert states() == ["kept", "unsure", "kept", "missed", "missed"]
    visits.append(visit(8, 0, 8, run=2))
    visits[-1].disturbed = True
    assert states() == ["kept", "unsure", "kept", "unsure", "missed"]


def test_a_level_with_few_requests_keeps_its_verdict_while_a_higher_one_is_kept() -> None:
    """Level 2 has a miss, so that levels 1 to 8 together show nothing; 4 and 8 do."""
    visits = [visit(1, 4), visit(4, 20), visit(8, 20)]
    states = [one.state for one in search_state(visits, None, 0.2).levels]
    visits.append(visit(2, 8, 1))
    assert judge(visits, 0.2)[0].kept is None
    after = {one.c: one.state for one in search_state(visits, None, 0.2).levels}
    assert states == ["kept", "kept", "unsure"] == [after[c] for c in (1, 4, 8)] and after[2] == "unsure"


def test_levels_of_a_session_have_the_verdicts_of_its_search() -> None:
    counts = {1: (4, 0), 4: (30, 0), 8: (20, 0), 16: (1, 1)}
    visits = [visit(c, *of) for c, of in counts.items()]
    search = search_state(visits, None, 0.2)
    records: dict[LevelKey, list[Record]] = {
        (c, None): [GOOD] * good + [LATE] * late for c, (good, late) in counts.items()
    }
    by_levels = goodput([level(c) for c in (*counts, 32)], records | {(32, None): [LATE] * 9}, SLO)
    assert [one.kept for one in by_levels] == [None, None, None, None, False], "95 % sure"
    assert [one.kept for one in searched_goodput(by_levels, search)] == [True, True, None, False, False]
    assert searched_goodput(by_levels, None) == by_levels
    judged, opened = leave_missed_open(searched_goodput(by_levels, search), search)
    assert [one.kept for one in judged] == [True, True, None, None, None]
    assert opened is not None and {one.state for one in opened.levels} == {"kept", "unsure"}
    assert (opened.low, opened.high) == (search.low, search.high)
    cliff = SearchState(goal="cliff", levels=(SearchedLevel(c=4, visits=1, n=9, good=None, state="missed"),))
    assert leave_missed_open((), cliff) == ((), cliff), "it has no SLO"


def test_unfinished_request_counts_if_it_had_met_or_missed_the_limits() -> None:
    slo = parse_slo("ttft_p95=2s")
    cut = {"phase": "unfinished", "error": "cancelled", "t_done_ns": BOOT_NS + 3000 * MS}
    waiting = msgspec.structs.replace(GOOD, t_first_ns=None, t_last_ns=None, chunks=0, **cut)
    young = msgspec.structs.replace(waiting, t_done_ns=BOOT_NS + 1000 * MS)
    tally = Visit(4, slo, [msgspec.structs.replace(GOOD, **cut), waiting, young]).slo
    assert (tally.good, tally.n, tally.counts) == (1, 2, [(1, 2)])
    # How fast the rest of an answer would have come is not known.
    both = Visit(4, SLO, [msgspec.structs.replace(GOOD, **cut), waiting, young]).slo
    assert (both.good, both.n, both.counts) == (0, 1, [(1, 2), (0, 0)])


def test_server_that_misses_the_slo_alone_or_never() -> None:
    slow = Visit(1, SLO, [SLOW] * 4)
    none = capacity(SLO, [slow], [], alpha=ALPHA)
    assert (none.agents, none.low, none.high) == (0, 0, 0)
    words = "a first token within 2 s and 20 tok/s each, for 95 % of requests"
    assert capacity_headline(none, SLO) == f"not even one agent with {words}"
    visits, many = search(500, 1.0, 1, highest=8)
    assert max(one.c for one in visits) == 8
    assert capacity_headline(many, SLO) == f"at least 8 agents with {words}; no level missed it"
    assert many.low == 8


def test_stopped_search_answers_from_what_was_measured() -> None:
    visits = [visit(c, 4 * c) for c in (1, 2, 4, 8, 16)]
    answer = capacity(SLO, [*visits, visit(32, 64, 64), visit(24, 0)], [], alpha=ALPHA)
    assert (answer.agents, answer.low, answer.high, answer.next_c) == (16, 8, 31, 32)
    undecided = capacity(SLO, [*visits, visit(32, 118, 10)], [], alpha=ALPHA)
    assert capacity_headline(undecided, SLO).startswith("16 agents with a first token within 2 s")


def test_answer_names_the_agent_that_evicts() -> None:
    found = [*(visit(c, 240) for c in (1, 2, 4, 8, 10, 11)), *(visit(c, 20, 80) for c in (12, 16))]
    hits = {1: 0.9, 2: 0.92, 4: 0.94, 8: 0.93, 10: 0.94, 11: 0.94, 12: 0.71, 16: 0.3}
    energy = Energy(seconds=1.0, mean_w=2000.0)
    levels = [
        msgspec.structs.replace(level(c, tps=100.0 * c), tokens_in=1000, cached_tokens=round(1000 * hit), energy=energy)
        for c, hit in hits.items()
    ]
    servers = [DiscoveredServer(url="a", kv_tokens=10_030), DiscoveredServer(url="b", kv_tokens=2_006)]
    answer = capacity(SLO, found, levels, servers, alpha=ALPHA, context_tokens=1003.0, gpus=8, price_per_hour=20.0)
    assert capacity_sentences(answer) == [
        "KV cache: room for 12 contexts of about 1,003 tokens; hit rate 0.94 at C=11, 0.71 at C=12",
        "1.38 agents per GPU; 5.5 agents per kW; 5.05 per million output tokens",
    ]


def test_hit_rate_that_falls_little_by_little_is_compared_with_the_best() -> None:
    """0.904 → 0.896 would read 0.90 → 0.90."""
    found = [visit(c, 160 * (c < 8), 160 * (c >= 8)) for c in (1, 2, 4, 8)]
    hits = {1: 940, 2: 949, 4: 904, 8: 896}
    levels = [msgspec.structs.replace(level(c), tokens_in=1000, cached_tokens=hit) for c, hit in hits.items()]
    answer = capacity(SLO, found, levels, alpha=ALPHA)
    assert answer.kv is not None and (answer.kv.c_before, answer.kv.c) == (2, 8)
    assert hit_texts(answer.kv) == ("0.95", "0.90")


def test_hit_rate_of_a_trace_falls_relative_to_what_its_sessions_allow() -> None:
    found = [visit(c, 160 * (c < 4), 160 * (c >= 4)) for c in (1, 2, 4)]
    rates = {1: (0.95, 0.96), 2: (0.80, 0.81), 4: (0.80, 0.90)}
    levels = [
        level(c, replay=TraceFigures(jobs=1, failed=0, hit_rate=hit, max_hit_rate=most))
        for c, (hit, most) in rates.items()
    ]
    answer = capacity(SLO, found, levels, alpha=ALPHA)
    kv = answer.kv
    assert kv is not None and (kv.c_before, kv.c, kv.hit_before, kv.hit_after) == (2, 4, 0.80, 0.80)
    assert capacity_sentences(answer)[0].endswith("hit rate 0.80 of at most 0.81 at C=2, 0.80 of at most 0.90 at C=4")


@pytest.mark.parametrize(("cached", "said"), [(None, "hit rates are not known"), (0, "the hit rate did not fall")])
def test_hit_rate_that_is_not_reported_is_not_said_to_hold(cached: int | None, said: str) -> None:
    found = [visit(1, 160), visit(2, 0, 80)]
    levels = [level(c, cached_tokens=cached) for c in (1, 2)]
    answer = capacity(
        SLO, found, levels, [DiscoveredServer(url="a", kv_tokens=1000)], alpha=ALPHA, context_tokens=100.0
    )
    assert capacity_sentences(answer)[0].endswith(f"100 tokens, so it should not be what limits; {said}")


def test_a_kv_cache_without_room_past_the_capacity_is_not_excluded_as_its_limit() -> None:
    found = [visit(1, 160), visit(2, 0, 80)]
    servers = [DiscoveredServer(url="a", kv_tokens=1000)]
    answer = capacity(SLO, found, [level(1), level(2)], servers, alpha=ALPHA, context_tokens=600.0)
    assert capacity_sentences(answer)[0].startswith("KV cache: room for 1 context of about 600 tokens; ")


@pytest.mark.parametrize(("slots", "has_room"), [(8, True), (12, False)])
def test_the_kv_cache_is_no_limit_if_every_slot_has_a_context(slots: int, has_room: bool) -> None:
    """20 agents keep the SLO and 21 do not; those that wait for a slot have no context."""
    found = [visit(20, 160), visit(21, 0, 80)]
    servers = [DiscoveredServer(url="a", kv_tokens=1000, slots=slots)]
    answer = capacity(SLO, found, [level(20), level(21)], servers, alpha=ALPHA, context_tokens=100.0)
    said = f"KV cache: room for 10 contexts of about 100 tokens; {slots} slots"
    assert answer.kv is not None
    assert room_text(answer.kv, answer.next_c) == said + (", so it should not be what limits" if has_room else "")


def test_visits_of_a_level_that_were_not_alike_are_counted_each() -> None:
    found = [visit(c, *counts) for c, counts in ((8, (160,)), (14, (17,)), (14, (5, 12)), (8, (160,)))]
    search = search_state(found, None, ALPHA)
    assert {one.c: one.unlike_visits for one in search.levels} == {8: (), 14: ((17, 17), (5, 17))}


def test_a_visit_that_was_cut_off_is_no_other_outcome() -> None:
    level = SearchedLevel(
        c=4, visits=2, n=18, good=17, state="unsure", cut=True, kept_visits=1, by_visit=((17, 17), (0, 1))
    )
    assert level.unlike_visits == ()


def test_no_cliff_without_a_known_pool_or_hits() -> None:
    found = [visit(1, 160), visit(2, 0, 80)]
    answer = capacity(SLO, found, [level(1), level(2)], [DiscoveredServer(url="a")], alpha=ALPHA)
    assert answer.kv is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 24), st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=12),
    st.sampled_from([0.2, ALPHA]),
)
@example([(1, 0, 1), (2, 19, 0)], 0.2)
@example([(1, 28, 3), (2, 0, 1), (3, 32, 0)], 0.2)  # the only level that is missed is a dip
def test_the_range_is_as_wide_as_the_verdicts_on_levels_or_wider_and_then_says_why(
    counted: list[tuple[int, int, int]], alpha: float
) -> None:
    """Whatever the levels and their visits were: no end is inside of the verdicts that tables show."""
    visits = [visit(c, good, late) for c, good, late in counted]
    found = capacity(SLO, visits, [], alpha=alpha)
    states = {one.c: one.state for one in search_state(visits, None, alpha).levels}
    judged = judge(visits, alpha)
    kept = [c for c, state in states.items() if state == "kept"]
    missed = [one.c for one in judged if one.kept is False and not one.dip]
    assert all(states[one.c] == ("unsure" if one.near else "missed") for one in judged if one.c in missed)
    assert found.low <= max(kept, default=0) <= found.agents
    assert found.high is None or found.agents <= found.high
    assert (found.high is None) is (not missed), "it is open only if no level is missed"
    assert all(c > found.agents for c in missed)
    assert found.high is None or found.high >= min(missed) - 1
    by_levels = found.low == max(kept, default=0) and found.high in (None, min(missed, default=0) - 1)
    near = [one for one in judged if one.near and one.kept is not None]
    assert (by_levels and not near) is all(finding.code != "runs_vary" for finding in found.findings)
    assert found.next_c is None or found.next_c > found.agents
