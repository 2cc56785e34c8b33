"""Create the tasks of a graph: each one once those that it depends on have ended."""

from __future__ import annotations

import msgspec

from swarmtui.model.record import Record
from swarmtui.model.workload import Graph, Task
from swarmtui.prompts.generator import fill_answers
from swarmtui.session_process.task_sources import TaskFactory, TaskSource


class GraphTasks(TaskSource):
    """The tasks of a graph, each issued as soon as the tasks that it depends on have answered."""

    def __init__(self, factory: TaskFactory, c: int, graph: Graph) -> None:
        super().__init__(factory, c, graph.size)
        self._nodes = [node for node in graph.tasks for _ in range(node.copies)]
        self._copies_left = {node.id: node.copies for node in graph.tasks}
        self._answers: dict[str, str] = {}
        self._pending = set(range(len(self._nodes)))
        self._running: dict[int, int] = {}
        self._quoted = {name for node in graph.tasks for name in node.after}

    @property
    def has_more(self) -> bool:
        return bool(self._pending)

    def next_task(self) -> Task | None:
        waiting = {name for name, left in self._copies_left.items() if left > 0}
        position = next((p for p in sorted(self._pending) if waiting.isdisjoint(self._nodes[p].after)), None)
        if position is None:
            return None
        self._pending.discard(position)
        node = self._nodes[position]
        task, _ = self._factory.create(self._c, position)
        task = fill_answers(task, {name: self._answers[name] for name in node.after})
        self._running[task.id] = position
        return msgspec.structs.replace(task, with_text=node.id in self._quoted)

    def task_finished(self, task: Task, record: Record) -> None:
        node = self._nodes[self._running.pop(task.id)]
        if record.ok:
            self._copies_left[node.id] -= 1
            before = self._answers.get(node.id, "")
            self._answers[node.id] = f"{before}\n\n{record.text or ''}".strip()
        else:
            self._skip_dependents(node.id)

    def _skip_dependents(self, failed: str) -> None:
        affected = {failed}
        while more := {n.id for n in self._nodes if n.id not in affected and affected.intersection(n.after)}:
            affected |= more
        skipped = {position for position in self._pending if self._nodes[position].id in affected - {failed}}
        self._pending -= skipped
        self.skipped += len(skipped)
        if self.total is not None:
            self.total -= len(skipped)

    def close(self) -> None:
        self._pending.clear()
