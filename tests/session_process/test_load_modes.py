"""Task sources of the load modes, and the order of levels."""

from __future__ import annotations

import time
from itertools import count, islice
from pathlib import Path

import pytest

from swarmtui.model.journal import StageStart
from swarmtui.model.load import Closed, Open, Sessions
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.workload import Graph, Message, Task
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, find_workload, parse_workload
from swarmtui.session_process.graph_tasks import GraphTasks
from swarmtui.session_process.load_modes import PlannedLoad
from swarmtui.session_process.task_sources import (
    ClosedLoopTasks,
    MixedTasks,
    NewTasks,
    RepeatedTasks,
    ScheduledTasks,
    TaskFactory,
    TaskSource,
    WarmupTasks,
)
from swarmtui.session_process.workers import ActiveStage

LEVEL = StageStart(number=1, t_ns=0, c=2, run=1, phase="level")
MIXED = """
kind = "mixed"
name = "m"
primary = { turns = ["first", "then"] }
side = [{ text = "one", type = "s1" }, { text = "two", type = "s2" }]
"""
GRAPH = """
kind = "dag"
name = "g"
[[tasks]]
id = "plan"
text = "make a plan"
[[tasks]]
id = "work"
text = "do {plan} now"
after = ["plan"]
copies = 2
[[tasks]]
id = "sum"
text = "of: {work}"
after = ["work"]
"""


def generator(text: str) -> TaskGenerator:
    found = WorkloadFile(workload=parse_workload(text, "made"), source="made", base=Path(), text=text)
    return TaskGenerator(found, seed=1, calibration=None)


def graph_tasks() -> GraphTasks:
    opened = generator(GRAPH)
    assert isinstance(opened.workload, Graph)
    return GraphTasks(TaskFactory(opened), 4, opened.workload)


def issue_all(source: TaskSource) -> list[Task]:
    return list(iter(source.next_task, None))


def finished(task: Task, text: str = "done", error: str | None = None) -> Record:
    return Record(task=task.id, text=text, error=error)


def prompt(task: Task) -> str:
    """The text without the nonce that precedes the first message."""
    text = task.messages[-1].content
    return text if len(task.messages) > 1 else text.partition("] ")[2]


def test_repeated_content_has_another_nonce() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("coding"), seed=1, calibration=None))
    source = NewTasks(factory, 3, 3)
    batch = issue_all(source)
    again = issue_all(RepeatedTasks(factory, 3, source.contents))
    assert list(map(prompt, batch)) == list(map(prompt, again))
    assert len({task.messages for task in batch + again}) == 6
    assert [task.id for task in batch + again] == list(range(6))


def closed_loop(c: int, total: int | None) -> ClosedLoopTasks:
    return ClosedLoopTasks(TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None)), c, total)


def issue(source: TaskSource, count: int) -> list[Task]:
    """Issue tasks, each of which shows its first token before the next one is asked for."""
    tasks: list[Task] = []
    for task in islice(iter(source.next_task, None), count):
        source.first_token(task.id)
        tasks.append(task)
    return tasks


def test_closed_loop_issues_preroll_then_measured_tasks_then_fillers() -> None:
    source = closed_loop(2, 3)
    tasks = issue(source, 9)
    assert [task.phase for task in tasks] == ["preroll"] * 2 + ["level"] * 3 + ["filler"] * 4
    assert source.total == 3 and not source.has_more
    source.close()
    assert source.next_task() is None


def test_fillers_follow_the_last_measured_task_at_once() -> None:
    """A worker gets them one by one as its streams end, not thousands at the end of the level."""
    source = closed_loop(2, 3)
    issue(source, 2)
    stage = ActiveStage(LEVEL, source)
    tasks = list(islice(iter(stage.next_task, None), 7))
    assert [task.phase for task in tasks] == ["level"] * 3 + ["filler"] * 4
    assert stage.issued == 3


def test_a_failed_preroll_request_is_replaced() -> None:
    """Otherwise one error would start the measurement while the other streams are still in prefill."""
    source = closed_loop(2, 3)
    first, second = issue(source, 1)[0], source.next_task()
    assert second is not None
    source.task_finished(second, Record(task=second.id, error="http_500"))
    third = source.next_task()
    assert third is not None and third.phase == "preroll" and source.preparing
    source.task_finished(third, Record(task=third.id))
    source.first_token(first.id)
    assert not source.preparing, "a first token counts once"
    following = source.next_task()
    assert following is not None and following.phase == "level"


def fixed_lengths(c: int, workload: str = "random-1k-1k") -> ClosedLoopTasks:
    return ClosedLoopTasks(TaskFactory(TaskGenerator(find_workload(workload), seed=1, calibration=None)), c, 2 * c)


def test_preroll_of_equal_lengths_is_cut_so_that_streams_do_not_start_in_step() -> None:
    """The first ones are the longest: they write while the prompts of the others are read."""
    source = fixed_lengths(4)
    shares = [(task.max_tokens or 0) / 1024 for task in islice(iter(source.next_task, None), 4)]
    assert len(set(shares)) == 4 and shares[0] - shares[-1] > 0.4
    assert shares == sorted(shares, reverse=True)
    assert all(task.max_tokens is None for task in islice(iter(closed_loop(4, 8).next_task, None), 4))


def test_preroll_of_equal_lengths_lasts_until_the_first_request_of_each_stream_has_a_first_token() -> None:
    source = fixed_lengths(2)
    first, second, following = islice(iter(source.next_task, None), 3)
    assert (following.phase, following.max_tokens) == ("preroll", 1024), "what is measured waits behind whole answers"
    source.first_token(first.id)
    source.first_token(following.id)
    assert source.preparing
    source.first_token(second.id)
    assert not source.preparing
    measured = source.next_task()
    assert measured is not None and (measured.phase, measured.max_tokens) == ("level", 1024)


def test_only_answers_that_get_a_slot_at_once_are_cut() -> None:
    """Cut ones in the queue would let the first measured requests wait less than the others."""
    factory = TaskFactory(TaskGenerator(find_workload("random-1k-1k"), seed=1, calibration=None))
    factory.slots = 3
    source = ClosedLoopTasks(factory, 8, 16)
    cut = list(iter(source.next_task, None))
    lengths = sorted(task.max_tokens or 0 for task in cut)
    assert lengths == [341, 683, 1024], "evenly apart, and the others are sent before the first slot is free"
    for task in cut[:2]:
        source.first_token(task.id)
    assert source.next_task() is None, "another answer could get the third slot"
    source.first_token(cut[2].id)
    assert [task.max_tokens for task in islice(iter(source.next_task, None), 5)] == [1024] * 5


@pytest.mark.parametrize(
    ("limit", "reached", "in_step"), [(128, None, True), (128, 0.5, False), (2048, None, False), (2048, 0.9, True)]
)
def test_answers_that_reach_their_limit_have_equal_lengths(limit: int, reached: float | None, in_step: bool) -> None:
    """It is seen from ten answers whether they do; before, short ones are expected to."""
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None, max_tokens=limit))
    for number in range(10 if reached is not None else 0):
        reason = "length" if number < 10 * (reached or 0.0) else "stop"
        factory.count_end(Record(task=number, phase="level", finish_reason=reason))
    lengths = {task.max_tokens for task in islice(iter(ClosedLoopTasks(factory, 4, 8).next_task, None), 4)}
    assert len(lengths) == (4 if in_step else 1)


@pytest.mark.parametrize(
    ("seen", "slots", "cut"),
    [
        ((200, 250, 300, 220, 280), 8, True),
        ((200, 250, 300, 220), 8, False),
        ((200, 250, 300, 220, 280), None, False),
        ((20, 900, 60, 1500, 40), 8, False),
    ],
)
def test_preroll_of_similar_lengths_is_cut_once_they_are_known(
    seen: tuple[int, ...], slots: int | None, cut: bool
) -> None:
    """Answers in flight have any part of their length left; more where requests may wait, or lengths vary."""
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    factory.slots = slots
    for number, tokens in enumerate(seen):
        factory.count_end(Record(task=number, phase="level", tokens_out=tokens))
    *first, following = (task.max_tokens for task in islice(iter(ClosedLoopTasks(factory, 8, 16).next_task, None), 9))
    parts = [length for length in first if length is not None]
    assert following is None, "only the first answer of a stream is cut"
    assert (len(parts) >= 4 and len(set(parts)) > 3 and max(parts) < 250) if cut else not parts


def test_long_prompts_of_many_streams_are_separated_by_their_prefill() -> None:
    full = {task.max_tokens for task in islice(iter(fixed_lengths(16, "long-prefill").next_task, None), 16)}
    assert full == {128}
    assert len({task.max_tokens for task in islice(iter(fixed_lengths(8, "long-prefill").next_task, None), 8)}) > 4


def test_preroll_on_a_server_that_answers_nothing_ends() -> None:
    source = closed_loop(2, 3)
    phases = []
    for task in islice(iter(source.next_task, None), 11):
        phases.append(task.phase)
        source.task_finished(task, Record(task=task.id, error="http_500"))
    assert phases == ["preroll"] * 8 + ["level"] * 3


def test_no_reserve_is_handed_out_before_the_measurement_can_begin() -> None:
    stage = ActiveStage(LEVEL, closed_loop(2, 3))
    assert stage.depth == 1
    issue(stage.source, 2)
    assert stage.depth > 1


def test_time_that_is_up_turns_the_next_tasks_into_fillers() -> None:
    source = closed_loop(1, None)
    issued = [task.phase for task in issue(source, 3)]
    assert issued == ["level", "level", "level"] and source.has_more, "a single stream needs no pre-roll"
    source.start_fillers()
    task = source.next_task()
    assert task is not None and task.phase == "filler"
    assert (source.has_more, source.total) == (False, 3)


def test_stage_is_over_when_a_request_after_the_measured_ones_is_in_flight() -> None:
    source = closed_loop(2, 4)
    tasks = issue(source, 7)
    for task in tasks[:6]:
        source.request_sent(task.id)
    assert (source.over, source.to_finish) == (False, 3), "of two in flight at the end one may be measured"
    source.request_sent(tasks[6].id)
    assert source.over and tasks[6].phase == "filler"


def test_stage_is_over_when_a_filler_ended_before_it_was_seen_in_flight() -> None:
    source = closed_loop(1, 1)
    _, filler = issue(source, 2)
    source.task_finished(filler, finished(filler, error="http_500"))
    assert source.over


def test_stage_that_is_to_be_complete_waits_for_its_answers() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    for load in (Closed(complete=True), Closed(canaries="5%")):
        source = PlannedLoad(Plan(load=load), factory).task_source((2, None), 1)
        for task in issue(source, 20):
            source.request_sent(task.id)
            source.task_finished(task, finished(task))
        assert (source.over, source.may_end, source.to_finish) == (False, None, 6)
    planned = PlannedLoad(Plan(), factory, complete=True)
    assert planned.task_source((2, None), 1).may_end is None


def test_time_ends_a_stage_after_a_whole_cycle() -> None:
    source = closed_loop(2, None)
    tasks = issue(source, 5)
    assert source.may_end is False
    for task in tasks[:2]:
        assert source.may_end is False
        source.task_finished(task, finished(task))
    assert source.may_end is True


def test_number_of_fillers_changes_neither_measured_prompts_nor_their_nonces() -> None:
    def measured(fillers: int) -> list[tuple[Message, ...]]:
        factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
        found = []
        for _ in range(2):
            source = ClosedLoopTasks(factory, 2, 4)
            found += [t.messages for t in issue(source, 6 + fillers) if t.phase == "level"]
        return found

    assert measured(0) == measured(9)


def test_warmup_and_serial_tasks_use_up_no_prompts() -> None:
    opened = TaskGenerator(find_workload("s0-swarm-coding"), seed=1, calibration=None)
    factory = TaskFactory(opened)
    seen: list[str] = []
    for c in (1, 2, 3, 4, 4, 3, 2, 1):
        issue_all(WarmupTasks(factory, 1, 2))
        source = NewTasks(factory, c, c)
        seen += map(prompt, issue_all(source))
        issue_all(RepeatedTasks(factory, c, source.contents))
    assert len(seen) == len(set(seen)) == 20


def test_side_tasks_run_once_without_loop() -> None:
    source = MixedTasks(TaskFactory(generator(MIXED)), 3, loop=False)
    tasks = issue_all(source)
    assert [task.type for task in tasks] == ["primary", "s1", "s2"]
    assert tasks[0].followups == ("then",)
    assert not source.has_more and source.total == 3


def test_side_tasks_repeat_until_the_primary_task_has_ended() -> None:
    source = MixedTasks(TaskFactory(generator(MIXED)), 3, loop=True)
    primary, one, two = issue_all(source)
    assert source.has_more and source.total is None
    source.task_finished(one, finished(one))
    (again,) = issue_all(source)
    assert again.type == "s1" and again.id not in (primary.id, one.id, two.id)
    source.task_finished(primary, finished(primary))
    source.task_finished(two, finished(two))
    assert issue_all(source) == [] and not source.has_more


def test_graph_tasks_wait_for_answers_and_quote_them() -> None:
    source = graph_tasks()
    (plan,) = issue_all(source)
    assert plan.with_text and source.has_more
    source.task_finished(plan, finished(plan, "the plan"))
    first, second = issue_all(source)
    assert prompt(first) == prompt(second) == "do the plan now"
    source.task_finished(first, finished(first, "A"))
    assert issue_all(source) == []
    source.task_finished(second, finished(second, "B"))
    (last,) = issue_all(source)
    assert prompt(last) == "of: A\n\nB" and not last.with_text
    assert not source.has_more and source.total == 4


def test_dependents_of_a_failed_task_are_skipped() -> None:
    source = graph_tasks()
    (plan,) = issue_all(source)
    source.task_finished(plan, finished(plan, error="http_500"))
    assert issue_all(source) == [] and not source.has_more
    assert (source.skipped, source.total) == (3, 1)


def test_failed_copy_skips_its_dependents_but_not_other_copies() -> None:
    source = graph_tasks()
    (plan,) = issue_all(source)
    source.task_finished(plan, finished(plan))
    first, second = issue_all(source)
    source.task_finished(first, finished(first, error="reset"))
    source.task_finished(second, finished(second))
    assert issue_all(source) == [] and not source.has_more
    assert (source.skipped, source.total) == (1, 3)


def test_scheduled_tasks_are_issued_ahead_of_their_send_time() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    before = time.perf_counter_ns()
    source = ScheduledTasks(factory, 8, (0.25 * n for n in count(1)), None, None)
    times = [task.at_ns or 0 for task in issue_all(source)]
    assert [at_ns - times[0] for at_ns in times[:4]] == [0, 250_000_000, 500_000_000, 750_000_000]
    assert times[0] - before >= 450_000_000
    assert len(times) <= 5 and source.has_more


def test_scheduled_tasks_end_by_count_or_by_duration() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    by_number = ScheduledTasks(factory, 8, (0.01 * n for n in count(1)), 3, None)
    assert len(issue_all(by_number)) == 3 and not by_number.has_more
    by_time = ScheduledTasks(factory, 8, (0.1 * n for n in count(1)), None, 0.45)
    assert len(issue_all(by_time)) == 4 and not by_time.has_more


def test_rotated_levels_form_a_latin_square() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    order = [(c, run) for (c, _), run in PlannedLoad(Plan(load=Closed(rotate=True)), factory).run_order((1, 2, 4), 3)]
    assert order == [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (1, 2), (4, 3), (1, 3), (2, 3)]
    plain = PlannedLoad(Plan(), factory).run_order((1, 2), 2)
    assert plain == [((1, None), 1), ((1, None), 2), ((2, None), 1), ((2, None), 2)]


def test_run_has_at_least_the_requests_that_a_search_needs() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    for load, own in ((Closed(), 6), (Closed(requests=8), 8)):
        planned = PlannedLoad(Plan(load=load), factory)
        assert [planned.task_source((2, None), 1, least).total for least in (0, 6, 50)] == [own, own, 50]


def test_run_plays_enough_sessions_for_the_jobs_that_a_search_needs() -> None:
    """Those at the beginning are not whole, and those at the end are cut off."""
    factory = TaskFactory(TaskGenerator(find_workload("agents"), seed=1, calibration=None))
    planned = PlannedLoad(Plan(load=Sessions(sessions="2C")), factory)
    played = [vars(planned.task_source((2, None), 1, 10, jobs=jobs))["_sessions"] for jobs in (False, True)]
    assert played == [4, 12]


def test_default_number_of_requests_is_whole_cycles_and_enough_for_a_median() -> None:
    default = Closed().per_run
    assert [default.at(c) for c in (1, 2, 3, 4, 8, 15, 16, 64)] == [5, 6, 9, 12, 16, 30, 48, 192]
    assert [default.at(c, equal=True) for c in (1, 2, 3, 4, 8, 16)] == [5, 6, 6, 8, 16, 48]
    assert Closed().run_length == "2C–3C requests"


def test_each_rate_of_an_open_loop_is_a_level() -> None:
    factory = TaskFactory(TaskGenerator(find_workload("chat"), seed=1, calibration=None))
    plan = Plan(load=Open(streams=512, rate=(20.0, 40.0), requests=3, rotate=True))
    planned = PlannedLoad(plan, factory)
    slow, fast = (512, 20.0), (512, 40.0)
    assert planned.run_order(plan.load.levels, 2) == [(slow, 1), (fast, 1), (fast, 2), (slow, 2)]
    times = {rate: [task.at_ns or 0 for task in issue_all(planned.task_source(rate, 1))] for rate in (slow, fast)}
    assert len(times[slow]) == len(times[fast]) == 3
    spans = [times[rate][-1] - times[rate][0] for rate in (slow, fast)]
    assert spans[0] == pytest.approx(2 * spans[1], rel=1e-6), "the same gaps, at half the rate"


def test_time_of_a_stage_ends_it_while_requests_are_in_flight() -> None:
    source = closed_loop(2, 3)
    issue(source, 2)
    stage = ActiveStage(LEVEL, source, duration_s=3600.0)
    assert stage.next_task() is not None
    stage.start_clock()
    assert stage.issued > stage.done and not stage.complete
    stage.until = 0.0
    assert stage.complete


def test_stage_waits_for_its_first_answer_for_three_durations() -> None:
    stage = ActiveStage(LEVEL, closed_loop(2, None), duration_s=3600.0)
    stage.until = time.monotonic() - 3600.0
    assert stage.timed_out and not stage.has_waited
    stage.done = 1
    assert stage.has_waited
    stage.done, stage.until = 0, time.monotonic() - 7200.0
    assert stage.has_waited
