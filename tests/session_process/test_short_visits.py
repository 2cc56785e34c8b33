"""Short visits of a search find what long levels find."""

from __future__ import annotations

from itertools import islice
from statistics import fmean

import pytest

from swarmtui.model.record import Record
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import find_workload
from swarmtui.session_process.task_sources import ClosedLoopTasks, TaskFactory
from tests.bench.short_visits import SHAPES, visit


def factory_of(lengths: tuple[int, ...], limit: int | None = 128, slots: int = 4) -> TaskFactory:
    """Return a factory that has seen answers of these lengths."""
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None, max_tokens=limit))
    factory.slots = slots
    for number, tokens in enumerate(lengths):
        reason = "length" if tokens == limit else "stop"
        factory.count_end(Record(task=number, phase="level", tokens_out=tokens, finish_reason=reason))
    return factory


def test_visits_of_a_level_with_a_queue_are_as_often_in_time_as_a_long_level() -> None:
    """First answers that were cut evenly apart let all requests wait equally long: 87 instead of 70 % were in time."""
    shape = SHAPES["coding, 128 tokens"]
    long = visit(shape, 4, 9, 400, 1)
    limit_s = 2.0
    found = fmean(visit(shape, 4, 9, 25, 1000 + seed).share_within(limit_s) for seed in range(10))
    assert long.share_within(limit_s) == pytest.approx(found, abs=0.08)


@pytest.mark.parametrize("c", [4, 6])
@pytest.mark.parametrize("lengths", [(128, 128, 128, 128, 90), (100, 110, 120, 90, 105)])
def test_parts_of_nearly_equal_answers_are_random_and_others_in_each_run(c: int, lengths: tuple[int, ...]) -> None:
    factory = factory_of(lengths)
    first, again = (
        [task.max_tokens for task in islice(iter(ClosedLoopTasks(factory, c, 16).next_task, None), 4)] for _ in range(2)
    )
    if lengths[0] == 128 or c > 4:
        assert first != again, "each run has its own"
        assert first[0] == 128, "one is whole: what waits is sent before it ends"
    assert len(set(first)) > 2
