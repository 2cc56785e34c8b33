"""Count the requests of the running level by the conditions of an SLO, also those that are late already."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from swarmtui.analysis.limits.slo import SloCondition, SloTally, parse_slo
from swarmtui.model.findings import KeptShare
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import StreamRow


class RunningSlo:
    """A request whose first token is late has missed the SLO from that moment on: otherwise a level would keep it until
    its last seconds. It counts as late until its record counts, so that both counts are the same in the end.
    """

    def __init__(self, slo: str, stage: int, since_ns: int) -> None:
        self._tally = SloTally(parse_slo(slo))
        self._stage, self._since_ns = stage, since_ns
        # By agent and request: whether it is past a limit of each condition.
        self._late: dict[tuple[int, int, int], tuple[bool, ...]] = {}

    def add(self, record: Record) -> None:
        if record.stage == self._stage:
            self._tally.add(record)
            self._late.pop((record.agent, record.task, record.t_sent_ns or 0), None)

    def conditions(self, rows: Iterable[StreamRow], now: int) -> tuple[KeptShare, ...]:
        """Return what is known now; `rows` are the newest ones of all agents."""
        for row in rows:
            if row.measured and row.t_sent_ns >= self._since_ns:
                late = tuple(_is_late(condition, row, now) for condition in self._tally.slo.conditions)
                if any(late):
                    self._late[row.agent, *row.request] = late
        conditions = self._tally.slo.conditions
        counts = [sum(of) for of in zip(*self._late.values(), strict=True)] or [0] * len(conditions)
        return tuple(
            msgspec.structs.replace(share, value=self._tally.percentile_so_far(number, counts[number]))
            if conditions[number].limits.keys() == {"ttft"}
            else share
            for number, share in enumerate(self._tally.conditions(counts))
        )


def _is_late(condition: SloCondition, row: StreamRow, now: int) -> bool:
    age_s = (now - row.t_sent_ns) / 1e9
    waits_s = {"ttft": age_s if row.ttft_s is None else row.ttft_s, "e2e": age_s}
    if row.state != "writing":
        waits_s["ttfo"] = age_s
    return any(waits_s[name] > limit for name, limit in condition.limits.items() if name in waits_s)
