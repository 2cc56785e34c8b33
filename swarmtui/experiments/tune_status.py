"""Read the state of a tune from its files: results, what is running now, and whether its process is alive."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

from swarmtui.experiments.effects import latest
from swarmtui.experiments.grid import all_configurations, configuration_key, halving_rounds, survivors
from swarmtui.experiments.tune_store import read_saved_tune, read_state, read_status
from swarmtui.model.base import Stored
from swarmtui.model.tuning import Flags, TuneFile, TuneResult, TuneStatus

ConfigurationState = Literal["waiting", "starting", "warming up", "running", "stopping", "done", "broken"]

# Two readings of the start time of a process may differ by a clock tick.
_START_TIME_TOLERANCE_S = 0.5


class ConfigurationStatus(Stored, frozen=True, kw_only=True):
    """One configuration; `row` is its latest result, from this round or an earlier one."""

    flags: Flags
    state: ConfigurationState
    round: int
    row: TuneResult | None = None

    @property
    def is_active(self) -> bool:
        return self.state not in ("waiting", "done", "broken")


class TuneSnapshot(Stored, frozen=True, kw_only=True):
    """A tune as its files describe it: results in the order of the file; `alive`: its process is running."""

    tune: TuneFile
    rows: tuple[TuneResult, ...] = ()
    status: TuneStatus | None = None
    alive: bool = False


def read_snapshot(directory: Path) -> TuneSnapshot:
    tune, status = read_saved_tune(directory), read_status(directory)
    return TuneSnapshot(
        tune=tune,
        rows=tuple(rows_in_file_order(tune, read_state(directory, tune.name).rows)),
        status=status,
        alive=is_alive(status),
    )


def rows_in_file_order(tune: TuneFile, rows: Sequence[TuneResult]) -> list[TuneResult]:
    """The results of configurations that the file contains, in its order."""
    position = {configuration_key(flags): number for number, flags in enumerate(all_configurations(tune))}
    known = [row for row in rows if configuration_key(row.flags) in position]
    return sorted(known, key=lambda row: (row.round, position[configuration_key(row.flags)]))


def remaining_configurations(tune: TuneFile, rows: Sequence[TuneResult]) -> int:
    """How many configurations of the current round are still to be measured; 0 if all rounds are done."""
    for round_ in halving_rounds(tune):
        done = {configuration_key(row.flags) for row in rows if row.round == round_.number}
        if left := sum(configuration_key(flags) not in done for flags in _in_round(tune, rows, round_.number)):
            return left
    return 0


def configuration_statuses(snapshot: TuneSnapshot) -> list[ConfigurationStatus]:
    """All configurations, in the order of the file."""
    tune, status = snapshot.tune, snapshot.status
    active = status if snapshot.alive and status and status.flags is not None and not status.ended else None
    active_key = configuration_key(active.flags) if active and active.flags is not None else None
    number = active.round if active else max((row.round for row in snapshot.rows), default=0)
    results = {configuration_key(row.flags): row for row in latest(snapshot.rows)}
    in_round = {configuration_key(flags) for flags in _in_round(tune, snapshot.rows, number)}
    statuses = []
    for flags in all_configurations(tune):
        key = configuration_key(flags)
        known = results.get(key)
        repeats = known is not None and known.round < number and key in in_round
        state: ConfigurationState = "waiting" if known is None or repeats else known.state
        if active and key == active_key:
            state = active.phase
        last = known.round if known else 0
        statuses.append(
            ConfigurationStatus(flags=flags, state=state, round=number if key in in_round else last, row=known)
        )
    return statuses


def _in_round(tune: TuneFile, rows: Sequence[TuneResult], number: int) -> Sequence[Flags]:
    """The configurations of a round: all of them, or those that the round before selected."""
    if not number:
        return all_configurations(tune)
    rounds = halving_rounds(tune)
    if number >= len(rounds):  # the grid was reduced after the tune had started
        return ()
    before = [row for row in rows if row.round == number - 1]
    return survivors(before, rounds[number].configurations, tune.objective)


def process_start_time(pid: int) -> float:
    """Start time of a process; 0 if it does not exist or is a zombie."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return 0.0


def is_alive(status: TuneStatus | None) -> bool:
    return (
        status is not None
        and not status.ended
        and abs(process_start_time(status.pid) - status.born) < _START_TIME_TOLERANCE_S
    )


def request_stop(status: TuneStatus) -> None:
    """Send SIGTERM, unless the pid now belongs to another process."""
    if is_alive(status):
        os.kill(status.pid, signal.SIGTERM)
