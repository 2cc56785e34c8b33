"""Canaries: answers that get worse under load are found, and others are not."""

from __future__ import annotations

from random import Random

import pytest

from swarmtui.analysis.levels.canaries import canary_findings, fisher_p, wilson_interval
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.loadgen.response import Response
from swarmtui.model.session import CanaryFigures, Level
from tests.analysis.record_builders import end, request, stage

CORRUPTED = ("", "\ufffd\x01\ufffd\ufffd\x02\ufffd\ufffd", "the same again " * 40)
HEALTHY = "def add(a, b):\n    return a + b  # adds two numbers\n"


def figures(passed: int, n: int, alone: int = 20, alone_n: int = 20) -> CanaryFigures:
    low, high = wilson_interval(passed, n)
    return CanaryFigures(
        n=n,
        passed=passed,
        pass_low=low,
        pass_high=high,
        alone_n=alone_n,
        alone_passed=alone,
        applicable=2 * alone >= alone_n,
    )


def is_degenerate(text: str) -> bool:
    response = Response()
    for word in text.split(" ") if text else ():
        response.add_output(len(response.times), word + " ", None, "")
    response.finish_reason = "stop"
    return response.degenerate(max(20, len(response.times)), exact=False)


_FOUND = {text: is_degenerate(text) for text in (HEALTHY, *CORRUPTED)}


def codes(found: CanaryFigures, answers: tuple[int, int], at_one: tuple[int, int] | None) -> set[str]:
    return {finding.code for finding in canary_findings(found, answers, at_one, "C=16", 0.05 / 2)}


def simulate(rng: Random, corrupted: float, wrong_alone: float = 0.02, usual: float = 0.0) -> set[str]:
    """Simulate 400 requests and 20 canaries, of which a share is corrupted on the way, after 400 at C=1.

    `usual` is the share of degenerate answers of a server that works.
    """
    alone = sum(rng.random() >= wrong_alone for _ in range(20))
    passed = sum(rng.random() >= wrong_alone and rng.random() >= corrupted for _ in range(20))
    answers = [rng.choice(CORRUPTED) if rng.random() < max(corrupted, usual) else HEALTHY for _ in range(400)]
    single = [rng.choice(CORRUPTED) if rng.random() < usual else HEALTHY for _ in range(400)]
    degenerate, before = (sum(map(_FOUND.__getitem__, each)) for each in (answers, single))
    return codes(figures(passed, 20, alone), (degenerate, 400), (before, 400))


def test_corrupted_answers_are_found() -> None:
    rng = Random(1)
    alarms = [simulate(rng, 0.05) & {"answers_worse", "answers_degenerate"} for _ in range(100)]
    assert sum(map(bool, alarms)) >= 95


def test_no_alarm_without_a_difference() -> None:
    rng = Random(2)
    for wrong in (0.0, 0.02, 0.2):
        alarms = [simulate(rng, 0.0, wrong) & {"answers_worse", "answers_degenerate"} for _ in range(100)]
        assert sum(map(bool, alarms)) <= 5
    for usual in (0.005, 0.02, 0.1):  # as many degenerate answers as at C=1
        alarms = [simulate(rng, 0.0, usual=usual) & {"answers_degenerate"} for _ in range(100)]
        assert sum(map(bool, alarms)) <= 5


def test_degenerate_answers_are_compared_with_those_of_the_level_c1() -> None:
    passing = figures(20, 20)
    assert "answers_degenerate" in codes(passing, (40, 400), (2, 400))
    assert "answers_degenerate" not in codes(passing, (40, 400), (40, 400))
    assert "answers_degenerate" not in codes(passing, (400, 400), None)  # no level C=1 in this session
    found = list(canary_findings(passing, (40, 400), (4, 400), "C=16", 0.025))[-1]
    assert found.text == "answers got worse: 10 % of answers are empty, loops or garbage at C=16, 1 % at C=1"


def test_drop_is_a_sentence_with_both_rates() -> None:
    found = list(canary_findings(figures(65, 80, 79, 80), (0, 400), None, "C=16", 0.025))
    assert [finding.code for finding in found] == ["canaries", "answers_worse"]
    assert found[1].text == "answers got worse: 99 % → 81 % at C=16"
    assert found[0].text.startswith("65 of 80 canaries pass (71 % to 88 %), alone 79 of 80")


def test_model_that_knows_nothing_is_not_judged() -> None:
    (found,) = canary_findings(figures(0, 20, 1), (400, 400), (0, 400), "C=4", 0.025)
    assert found.code == "canaries_not_applicable"
    assert found.text == "canaries are not applicable: alone, the model answers 1 of 20 questions"


@pytest.mark.parametrize(
    ("text", "degenerate"),
    [
        (HEALTHY, False),
        ("again and " * 30, True),
        ("| --- | --- | --- |\n" * 5 + HEALTHY, False),
        ("caf\ufffd is one bad character in a longer text", False),
        ("\ufffd\ufffd\ufffd\x07 \ufffd\ufffd", True),
    ],
)
def test_loops_and_garbage_are_degenerate(text: str, degenerate: bool) -> None:
    assert is_degenerate(text) is degenerate


def test_exact_tests() -> None:
    assert fisher_p(20, 20, 16, 20) == pytest.approx(0.0530, abs=1e-4)
    assert fisher_p(20, 20, 20, 20) == pytest.approx(1.0)
    assert wilson_interval(0, 0) == (None, None)


def level_with_canaries(text: str) -> Level:
    answers = [("canary-01", "pass", "43"), ("canary-02", "pass", "Paris it is")]
    first = [
        request(0, [1, 2], task=i, stage=1, c=1, phase="canary", type=kind, verdict=verdict, text=words)
        for i, (kind, verdict, words) in enumerate(answers)
    ]
    level = [request(10, [11, 12], task=9, stage=2, c=4)]
    level += [request(10, [11, 12], task=10, stage=2, c=4, phase="canary", type="canary-02", verdict="pass", text=text)]
    stages = [stage(1, c=1, phase="canary"), stage(2, c=4)]
    (found,) = level_figures([*first, *level], stages, [end(1), end(2)])
    return found


def test_canaries_are_in_no_other_figure_and_compared_with_the_reference() -> None:
    found = level_with_canaries("Paris it was")
    assert found.canaries is not None
    assert (found.n, found.canaries.n, found.canaries.alone_n) == (1, 1, 2)
    assert (found.canaries.passed, found.canaries.alone_passed) == (1, 2)
    assert (found.canaries.compared, found.canaries.diverged, found.canaries.diverged_after) == (1, 1, 9)
    same = level_with_canaries("Paris it is").canaries
    assert same is not None and (same.diverged, same.diverged_after) == (0, None)
