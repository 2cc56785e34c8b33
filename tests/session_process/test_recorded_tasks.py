"""Recorded sessions in slots: order, pauses, sub-agents and replacement, by a simulated clock."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.model.load import Sessions
from swarmtui.model.record import Record
from swarmtui.model.trace import ReplayedRequest, SubAgent, TraceRequest, TraceSession, subagents_of
from swarmtui.model.workload import Task
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import find_workload
from swarmtui.prompts.traces.recordings import Recordings, first_sessions
from swarmtui.prompts.traces.weka import weka_json
from swarmtui.session_process.recorded_tasks import RecordedTasks
from swarmtui.session_process.task_sources import TaskFactory

S = 1_000_000_000
MAX_GAP_S, TIME_SCALE = 4.0, 2.0


def requests(count: int) -> st.SearchStrategy[tuple[TraceRequest, ...]]:
    one = st.builds(
        TraceRequest,
        input_tokens=st.integers(1, 300),
        output_tokens=st.integers(0, 50),
        think_s=st.none() | st.floats(0, 9).map(lambda value: round(value, 3)),
    )
    return st.lists(one, min_size=1, max_size=count).map(tuple)


@st.composite
def sessions(draw: st.DrawFn) -> TraceSession:
    agents = st.lists(st.builds(SubAgent, at_s=st.just(0.0), requests=requests(3)), max_size=2).map(tuple)
    parents = draw(requests(4))
    return TraceSession(
        id=f"s{draw(st.integers(0, 10**9))}",
        requests=(
            parents[0],
            *(
                TraceRequest(
                    input_tokens=one.input_tokens, output_tokens=1, think_s=one.think_s, subagents=draw(agents)
                )
                for one in parents[1:]
            ),
        ),
        subagents=draw(agents),
    )


class Simulation:
    """Answers each request after a time, and records when requests were due and answered."""

    def __init__(
        self,
        recorded: list[TraceSession],
        c: int,
        limit: int | None,
        total: int | None = None,
        first_answer_s: int | None = None,
    ) -> None:
        """`first_answer_s` is how long the second request takes."""
        self.now, self._first_answer_s = 0, first_answer_s
        self.sent: list[tuple[int, int, Task]] = []
        with tempfile.TemporaryDirectory() as directory:
            for number, session in enumerate(recorded):
                (Path(directory) / f"{number}.json").write_bytes(weka_json(session))
            generator = TaskGenerator(find_workload(directory), seed=3, calibration=None)
            self.source = RecordedTasks(
                TaskFactory(generator), c, Sessions(max_gap=f"{MAX_GAP_S}s", time_scale=TIME_SCALE), 1,
                total=total, sessions=limit, clock_ns=lambda: self.now,
            )  # fmt: skip
            self._run()

    def _run(self) -> None:
        flying: list[tuple[int, int, Task]] = []
        assert self.source.preparing
        while self.source.has_more or any(task.phase == "level" for _, _, task in flying):
            while (task := self.source.next_task()) is not None:
                at_ns = task.at_ns or 0
                took_ns = S * (1 + task.id % 7) // 3
                if task.id == 1 and self._first_answer_s is not None:
                    took_ns = self._first_answer_s * S
                self.sent.append((at_ns, at_ns + took_ns, task))
                heappush(flying, (at_ns + took_ns, task.id, task))
            if flying and flying[0][0] <= self.now + S // 2:
                self.now, _, task = heappop(flying)
                self.source.task_finished(task, Record(task=task.id, t_last_ns=self.now))
            else:
                self.now += S // 2

    def by_play(self) -> dict[int, list[tuple[int, int, ReplayedRequest]]]:
        plays: defaultdict[int, list[tuple[int, int, ReplayedRequest]]] = defaultdict(list)
        for start, end, task in self.sent:
            assert task.replayed is not None
            plays[task.replayed.play].append((start, end, task.replayed))
        return plays


@settings(max_examples=15)
@given(recorded=st.lists(sessions(), min_size=1, max_size=5, unique_by=lambda one: one.id), c=st.integers(1, 4))
def test_sessions_are_played_in_order_with_their_pauses(recorded: list[TraceSession], c: int) -> None:
    played = Simulation(recorded, c, limit=3 * c)
    known = {session.id: session for session in recorded}
    spans = []
    for found in played.by_play().values():
        session = known[found[0][2].session]
        agents = [session.requests, *(agent.requests for agent in subagents_of(session))]
        chains: defaultdict[int, list[tuple[int, int, ReplayedRequest]]] = defaultdict(list)
        for one in found:
            chains[one[2].subagent].append(one)
        for agent, chain in chains.items():
            turns = [request.turn for _, _, request in chain]
            assert turns == list(range(turns[0], turns[0] + len(turns)))
            for (_, end, _), (start, _, request) in pairwise(chain):
                recorded_one = agents[agent][request.turn]
                if recorded_one.subagents:
                    assert start >= end
                else:
                    think_s = recorded_one.think_s or 0.0
                    assert abs(start - end - min(think_s, MAX_GAP_S) / TIME_SCALE * S) < 2
        assert found[0][2].requests == sum(map(len, agents))
        assert len(found) <= found[0][2].requests - found[0][2].skipped
        spans.append((min(start for start, _, _ in found), max(end for _, end, _ in found)))
    for start, _ in spans:
        assert sum(first <= start < last for first, last in spans) <= c
    assert len(spans) >= 3 * c


def test_parent_waits_for_its_subagents() -> None:
    agent = SubAgent(at_s=0.0, requests=(TraceRequest(input_tokens=9, output_tokens=1),) * 2)
    session = TraceSession(
        id="s",
        requests=(
            TraceRequest(input_tokens=9, output_tokens=1),
            TraceRequest(input_tokens=9, output_tokens=1, think_s=9.0, subagents=(agent, agent)),
        ),
    )
    played = Simulation([session], 1, limit=1)
    *others, last = played.by_play()[0]
    assert len(others) == 5 and last[2].turn == 1 and last[2].subagent == 0
    assert last[0] >= max(end for _, end, _ in others)
    first_of_agents = [start for start, _, request in others if request.subagent and not request.turn]
    assert first_of_agents[0] == first_of_agents[1] == others[0][1]


def test_first_requests_are_preroll_and_a_slot_without_a_session_ends_the_run() -> None:
    one = TraceSession(id="s", requests=(TraceRequest(input_tokens=99, output_tokens=1, think_s=1.0),) * 4)
    played = Simulation([one, one], 2, limit=4)
    phases = [task.phase for _, _, task in played.sent]
    assert phases[0] == "preroll" and "level" in phases and not played.source.preparing
    assert "preroll" not in phases[phases.index("level") :]
    # The second slot begins in the middle of its session, so that both are not at the same place.
    places = {play: found[0][2].turn for play, found in played.by_play().items()}
    assert (places[0], places[1], places[2]) == (0, 2, 0)


def test_long_sessions_are_in_more_of_the_first_slots(tmp_path: Path) -> None:
    """A session of twelve requests and three of four: at any time, half of the slots play the long one."""
    names = "abcd"
    for name, length in zip(names, (12, 4, 4, 4), strict=True):
        session = TraceSession(id=name, requests=(TraceRequest(input_tokens=99, output_tokens=1),) * length)
        (tmp_path / f"{name}.json").write_bytes(weka_json(session))
    assert Recordings([tmp_path]).lengths(1, 6) == [4, 4, 4, 12, 4, 4]
    assert [names[session] for session in first_sessions([12, 4, 4, 4])] == ["a", "a", "b", "c"]
    assert first_sessions([5]) == [0] and first_sessions([3, 3, 3]) == [0, 1, 2]
    generator = TaskGenerator(find_workload(str(tmp_path)), seed=3, calibration=None)
    source = RecordedTasks(
        TaskFactory(generator),
        4,
        Sessions(max_gap="0.01s"),
        1,
        total=None,
        sessions=None,
        clock_ns=lambda: 0,
    )
    replayed = [task.replayed for task in iter(source.next_task, None)]
    assert [(one.session, one.turn) for one in replayed if one] == [("a", 0), ("a", 3), ("b", 2), ("c", 3)]


def test_sessions_that_end_before_requests_count_do_not_shorten_the_run() -> None:
    """The second slot waits long for its first answer, while the first slot plays one session after another."""
    short = TraceSession(id="short", requests=(TraceRequest(input_tokens=99, output_tokens=1),))
    slow = TraceSession(id="slow", requests=(TraceRequest(input_tokens=99, output_tokens=1),) * 2)
    played = Simulation([short, slow, short], 2, limit=4, first_answer_s=20)
    counted = {task.replayed.play for _, _, task in played.sent if task.phase == "level" and task.replayed}
    assert len(counted) >= 2


def test_number_of_requests_ends_the_run() -> None:
    one = TraceSession(id="s", requests=(TraceRequest(input_tokens=99, output_tokens=1, think_s=1.0),) * 4)
    played = Simulation([one], 2, limit=None, total=7)
    assert [task.phase for _, _, task in played.sent].count("level") == 7


def test_slots_begin_one_after_another() -> None:
    """All at the same time would be a burst that no user of the trace made."""
    one = TraceSession(id="s", requests=(TraceRequest(input_tokens=99, output_tokens=1, think_s=1.0),) * 4)
    plays = Simulation([one, one, one], 3, limit=3).by_play()
    begins = [plays[number][0][0] for number in range(3)]
    assert begins[0] < begins[1] < begins[2]
    assert begins[1] - begins[0] == begins[2] - begins[1]


def test_slots_can_be_added_and_removed() -> None:
    one = TraceSession(id="s", requests=(TraceRequest(input_tokens=99, output_tokens=1, think_s=1.0),) * 9)
    source = Simulation([one], 2, limit=None, total=3).source
    assert source.continue_with(3) and source.has_more and source.streams and source.streams > 3
    assert not source.abandoned
    assert source.continue_with(1) and source.abandoned == [1]
    source.close()
    assert not source.continue_with(1) and source.next_task() is None
