from __future__ import annotations

from math import exp, expm1, log, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.compare.verdicts import (
    ALPHA,
    Interval,
    Kind,
    Verdict,
    compare_replicates,
    decide,
    detectable_change,
    holm_alphas,
    interval_text,
    likely_by_interval,
    replicates_needed,
    verdict_text,
    with_session_spread,
)
from swarmtui.analysis.levels.stats import standard_deviation

A, B = [100.0, 101.0, 102.0, 103.0], [110.0, 111.0, 112.0, 113.0]
rates = st.floats(50, 150)


def verdict(a: list[float], b: list[float], **options: object) -> Verdict:
    return decide(compare_replicates(a, b), **options)  # type: ignore[arg-type]


def drawn(random: Random, mean: float, n: int = 4, cv: float = 0.01) -> list[float]:
    return [mean * exp(random.gauss(0, cv)) for _ in range(n)]


def test_interval_is_welchs_on_logs_with_fewer_degrees_of_freedom() -> None:
    """By scipy.stats: ttest_ind(log(B), log(A), equal_var=False) with (df + 3) / 2 degrees of freedom."""
    found = verdict(A, B)
    assert found.word == "faster"
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((0.0736482, 0.1239958), abs=1e-6)
    assert found.p == pytest.approx(2.1465e-04, rel=1e-3)
    assert found.sentence == "faster: +9.9 % (95 % sure: +7.4 % to +12 %; 4 v 4 runs)"


@settings(max_examples=10)
@given(st.lists(rates, min_size=4, max_size=6), st.lists(rates, min_size=4, max_size=6), st.floats(0.001, 0.2))
def test_claim_and_printed_interval_always_agree(a: list[float], b: list[float], alpha: float) -> None:
    found = verdict(a, b, alpha=alpha)
    assert found.interval is not None
    excludes_zero = not found.interval.low <= 0 <= found.interval.high
    if found.word in ("faster", "slower"):
        assert excludes_zero
        assert found.interval.confidence == 1 - alpha
        assert (found.word == "faster") == (found.interval.low > 0)
    if found.word == "not sure yet":  # an interval that is too wide to tell anything is not printed
        assert not excludes_zero or interval_text(found.interval, " to ") == "not known"
    if found.word == "same":
        assert found.interval.confidence == pytest.approx(0.9)
        assert -0.02 <= found.interval.low <= found.interval.high <= 0.02


@pytest.mark.parametrize(
    ("low", "high", "kind", "likely"),
    [
        (0.06, 0.08, "rate", "faster"), (0.06, 0.08, "time", "slower"), (-0.1, -0.06, "rate", "slower"),
        (-0.4, -0.3, "first_token", "faster"), (0.01, 0.08, "rate", None), (-0.08, -0.01, "time", None),
        (-0.2, 0.2, "rate", None), (0.5, 9.0, "rate", None),
    ],
)  # fmt: skip
def test_a_change_is_likely_if_its_interval_is_beyond_what_restarts_change(
    low: float, high: float, kind: Kind, likely: str | None
) -> None:
    assert likely_by_interval(Interval(middle=(low + high) / 2, low=low, high=high), kind) == likely


@pytest.mark.parametrize(("n_a", "n_b", "count"), [(1, 1, "1 v 1"), (3, 3, "3 v 3"), (9, 3, "9 v 3")])
def test_fewer_than_four_runs_give_no_word_but_say_how_many_are_needed(n_a: int, n_b: int, count: str) -> None:
    found = verdict([100.0 + k for k in range(n_a)], [900.0 + k for k in range(n_b)])
    assert found.word is None and verdict_text(found.word) == "after 4 runs"
    assert found.sentence.endswith(f" % may be noise: {count} runs, 4 of each are needed")
    assert found.change is not None and found.change > 5


def test_claim_about_two_sessions_names_the_sessions() -> None:
    found = verdict(A, B, claim="sessions")
    assert (found.word, found.claim) == ("faster", "sessions")
    assert found.sentence.endswith("4 v 4 runs of one session each)")


def test_significant_change_within_two_percent_is_equivalent() -> None:
    a = [100.0, 100.1, 100.2, 100.3]
    found = verdict(a, [value * 1.008 for value in a])
    assert found.p is not None and found.p < 0.001
    assert found.word == "same"
    assert found.sentence.startswith("same within ±2 %: +0.8 % (95 % sure: ")


def test_not_measured_has_no_verdict() -> None:
    assert verdict([], [1.0, 2.0]).sentence == "not measured"
    assert verdict([0.0, 1.0, 1.0, 1.0], [1.0, 2.0, 2.0, 2.0]).word is None


def test_change_shown_is_that_of_the_figures_shown() -> None:
    """The figures of a level weigh its runs by their length."""
    found = decide(compare_replicates(A, B, change=0.08))
    assert found.change == 0.08
    assert found.sentence.startswith("faster: +8.0 % (95 % sure: +7.4 % to +12 %")
    assert decide(compare_replicates(A, B, change=-0.01)).word == "not sure yet"


def test_equal_runs_on_both_sides_are_equivalent_and_constant_ones_differ() -> None:
    assert verdict([5.0] * 4, [5.0] * 4).word == "same"
    assert verdict([5.0] * 4, [6.0] * 4).word == "faster"


def test_runs_with_the_same_requests_are_paired_if_that_narrows_the_interval() -> None:
    """Request lengths vary by 10 % between runs; the change of 3 % is the same in each."""
    a = [90.0, 100.0, 110.0, 105.0]
    b = [92.8, 103.0, 113.2, 108.1]
    assert decide(compare_replicates(a, b)).word == "not sure yet"
    found = decide(compare_replicates(a, b, same_requests=True))
    assert found.word == "faster"
    assert "4 v 4 runs, paired" in found.sentence
    unrelated = compare_replicates(A, [113.0, 110.0, 112.0, 111.0], same_requests=True)
    assert not unrelated.paired


def test_known_spread_between_sessions_decides_instead_of_runs() -> None:
    history = [100.0, 104.0, 97.0, 102.0]
    found = decide(with_session_spread(compare_replicates(A, B, change=0.10), history), claim="sessions")
    spread = standard_deviation([log(value) for value in history])
    half = t_quantile(0.975, 3) * sqrt(2 * spread**2)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(expm1(log(1.10) - half))
    assert found.interval.high == pytest.approx(expm1(log(1.10) + half))
    assert found.word == "not sure yet"
    assert "spread of 4 sessions" in found.sentence
    single = decide(
        with_session_spread(compare_replicates([100.0], [150.0]), [100.0, 101.0, 99.0, 100.5]), claim="sessions"
    )
    assert single.word == "faster"
    assert decide(with_session_spread(compare_replicates([100.0], [150.0]), [100.0]), claim="sessions").word is None


@pytest.mark.parametrize(
    ("p_values", "alphas"),
    [
        ([0.04], [0.05]),
        ([0.001, 0.04, 0.02, 0.5], [0.05 / 4, 0.05 / 3, 0.05 / 3, 0.05 / 3]),
        ([0.04, 0.01], [0.05, 0.025]),
        ([0.03, 0.03], [0.025, 0.025]),
        ([], []),
    ],
)
def test_holm_steps_stop_at_the_first_that_fails(p_values: list[float], alphas: list[float]) -> None:
    assert holm_alphas(p_values) == pytest.approx(alphas)


@settings(max_examples=100)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_alphas_reject_what_holm_rejects(p_values: list[float]) -> None:
    ordered, rejected = sorted(p_values), 0
    while rejected < len(ordered) and ordered[rejected] <= ALPHA / (len(ordered) - rejected):
        rejected += 1
    found = holm_alphas(p_values)
    assert sum(p <= alpha for p, alpha in zip(p_values, found, strict=True)) == rejected


def test_false_claims_of_equal_sides_are_at_most_five_percent() -> None:
    random = Random(7)
    wrong = sum(verdict(drawn(random, 100), drawn(random, 100)).word in ("faster", "slower") for _ in range(600))
    assert wrong / 600 <= 0.05


def test_five_percent_at_one_percent_cv_is_found() -> None:
    random = Random(8)
    found = sum(verdict(drawn(random, 100), drawn(random, 105)).word == "faster" for _ in range(250))
    assert found / 250 >= 0.95


@pytest.mark.parametrize("n", [4, 12])
def test_detectable_change_has_80_percent_power(n: int) -> None:
    random, cv = Random(n), 0.02
    change = 1 + detectable_change(cv, n, n)
    pairs = [(drawn(random, 100, n, cv), drawn(random, 100 * change, n, cv)) for _ in range(400)]
    assert 0.74 <= sum(verdict(a, b).word == "faster" for a, b in pairs) / 400 <= 0.9


def test_needed_runs_depend_on_the_wanted_change_not_on_the_observed_one() -> None:
    a = [95.0, 100.0, 105.0, 100.0]
    near, far = (verdict(a, [value * change for value in a]) for change in (1.001, 1.03))
    assert near.word == far.word == "not sure yet"
    assert near.needed == far.needed is not None
    assert f"{near.needed} runs of each would very likely show a difference of 5 %" in near.sentence
    assert verdict(a, a, detect=0.2).sentence.endswith("a difference of 20 % would very likely have been seen")
    assert "more than 200 runs of each are needed to show a difference of 0.1 %" in verdict(a, a, detect=0.001).sentence


def test_more_noise_needs_more_runs() -> None:
    low, high = replicates_needed(0.01, 0.02), replicates_needed(0.03, 0.02)
    assert low is not None and high is not None and 4 < low < high


@given(st.lists(rates, min_size=4, max_size=5), st.lists(rates, min_size=4, max_size=5))
def test_swapping_sides_swaps_the_word(a: list[float], b: list[float]) -> None:
    mirror = {"faster": "slower", "slower": "faster", "not sure yet": "not sure yet"}
    forth, back = verdict(a, b), verdict(b, a)
    if "same" not in (forth.word, back.word):
        assert mirror[forth.word or ""] == back.word


def test_needed_runs_of_pairs_follow_from_the_spread_of_their_differences() -> None:
    """The spread is that of one run: a difference of two has the square root of two times it."""
    a = [90.0, 100.0, 110.0, 105.0]
    apart = [0.02, 0.03, 0.04, 0.03]
    found = compare_replicates(a, [x * exp(d) for x, d in zip(a, apart, strict=True)], same_requests=True)
    assert found.paired
    assert found.spread == pytest.approx(standard_deviation(apart) / sqrt(2))


def test_stricter_alpha_needs_more_runs() -> None:
    """Several levels share the 5 %, so that each of them needs more runs than one alone."""
    assert detectable_change(0.02, 6, 6, alpha=0.01) > 1.2 * detectable_change(0.02, 6, 6)
    alone, shared = replicates_needed(0.02, 0.03), replicates_needed(0.02, 0.03, alpha=0.01)
    assert alone is not None and shared is not None and shared > alone
