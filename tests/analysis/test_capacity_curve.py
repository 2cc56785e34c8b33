"""The curve of good requests over C, which says where an SLO is no longer kept."""

from __future__ import annotations

import math
import random

import pytest

from swarmtui.analysis.capacity.agents import RunShare, crossing


def runs(levels: list[int], prompts: list[float], *, effect: float = 0.0, width: float = 0.1) -> list[RunShare]:
    """Runs on a server that keeps 95 % up to 43.5 agents with prompts of 1,000 tokens."""
    found = []
    for c, prompt in zip(levels, prompts, strict=True):
        score = math.log(19.0) - (c / 43.5 - 1.0) / width - effect * (prompt / 1000.0 - 1.0)
        found.append(RunShare(c, round(2000 / (1.0 + math.exp(-score))), 2000, prompt))
    return found


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_border_is_found_between_and_beyond_levels(scale: float) -> None:
    assert crossing(runs([40, 42, 44, 48, 52], [1000.0 * scale] * 5), 0.95, 1000.0 * scale) == pytest.approx(
        43.5, rel=0.02
    )
    assert crossing(runs([44, 45, 46, 47, 48], [1000.0 * scale] * 5), 0.95, 1000.0 * scale) == pytest.approx(
        43.5, rel=0.02
    )


def test_runs_with_long_prompts_do_not_move_the_border() -> None:
    """Prompts are as long as they are by chance; the mean of all requests is known better than that of a few runs."""

    def borders(mean: float | None) -> list[float]:
        found = []
        for seed in range(20):
            rng = random.Random(seed)
            levels = [40, 48, *[43, 44] * 4]
            some = runs(levels, [rng.gauss(1000.0, 35.0) for _ in levels], effect=20.0, width=0.05)
            border = crossing([run._replace(prompt_tokens=mean or run.prompt_tokens) for run in some], 0.95, 1000.0)
            assert border is not None
            found.append(border)
        return found

    adjusted, plain = borders(None), borders(1000.0)
    assert max(adjusted) - min(adjusted) < 0.6 * (max(plain) - min(plain))
    assert all(42.5 < border < 43.7 for border in adjusted)


def test_share_that_does_not_fall_has_no_border() -> None:
    assert crossing([RunShare(c, 96, 100, 0.0) for c in (4, 5, 6)], 0.95, 0.0) == math.inf
    assert crossing([RunShare(c, 80 + c, 100, 0.0) for c in (4, 5, 6)], 0.95, 0.0) is None
    steep = [RunShare(10, 100, 100, 0.0), RunShare(11, 0, 100, 0.0)]
    border = crossing(steep, 0.95, 0.0)
    assert border is not None and 10.0 <= border < 11.0
