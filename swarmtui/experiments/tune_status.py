"""Where a tune stands, as its files tell it: what was measured, what is on now, and whether anybody is at it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

from swarmtui.experiments.grid import cells_of, key_of, rounds_of, survivors
from swarmtui.experiments.tune_store import read_kept_tune, read_present, read_state
from swarmtui.model.schema import Stored
from swarmtui.model.tuning import CellRow, Flags, Present, TuneFile

CellState = Literal["waiting", "starting", "warming up", "running", "stopping", "done", "broken"]

# Two readings of when a process began may differ by a tick of the kernel.
_SAME_S = 0.5


class Cell(Stored, frozen=True, kw_only=True):
    """One cell as it is now. `row` is what is known of it so far, from this round or an earlier one."""

    flags: Flags
    state: CellState
    round: int
    row: CellRow | None = None

    @property
    def is_on(self) -> bool:
        return self.state not in ("waiting", "done", "broken")


class Standing(Stored, frozen=True, kw_only=True):
    """`rows` are those of cells that the file has, in its order. `alive`: a process is at it."""

    tune: TuneFile
    rows: tuple[CellRow, ...] = ()
    present: Present | None = None
    alive: bool = False


def read_standing(directory: Path) -> Standing:
    tune, present = read_kept_tune(directory), read_present(directory)
    return Standing(
        tune=tune,
        rows=tuple(rows_of(tune, read_state(directory, tune.name).rows)),
        present=present,
        alive=is_alive(present),
    )


def rows_of(tune: TuneFile, rows: Sequence[CellRow]) -> list[CellRow]:
    """Of the cells that the file has now, in its order."""
    place = {key_of(flags): number for number, flags in enumerate(cells_of(tune))}
    known = [row for row in rows if key_of(row.flags) in place]
    return sorted(known, key=lambda row: (row.round, place[key_of(row.flags)]))


def left_to_do(tune: TuneFile, rows: Sequence[CellRow]) -> int:
    """Cells that are still to be measured, as far as can be known now: later rounds hang on earlier ones."""
    cells: Sequence[Flags] = cells_of(tune)
    for stage in rounds_of(tune):
        known = [row for row in rows if row.round == stage.number]
        if stage.number:
            cells = survivors([row for row in rows if row.round == stage.number - 1], stage.cells, tune.objective)
        done = {key_of(row.flags) for row in known}
        if left := sum(key_of(flags) not in done for flags in cells):
            return left
    return 0


def cells_now(standing: Standing) -> list[Cell]:
    """All cells, in the order of the file."""
    tune, present = standing.tune, standing.present
    on = present if standing.alive and present and present.flags is not None and not present.ended else None
    number = on.round if on else max((row.round for row in standing.rows), default=0)
    latest: dict[str, CellRow] = {}
    for row in standing.rows:
        if key_of(row.flags) not in latest or row.round >= latest[key_of(row.flags)].round:
            latest[key_of(row.flags)] = row
    again = {key_of(flags) for flags in _in_round(standing, number)}
    made = []
    for flags in cells_of(tune):
        key = key_of(flags)
        known = latest.get(key)
        state: CellState = "waiting" if known is None or (known.round < number and key in again) else known.state
        if on is not None and on.flags is not None and key == key_of(on.flags):
            state = on.phase
        last = known.round if known else 0
        made.append(Cell(flags=flags, state=state, round=number if key in again else last, row=known))
    return made


def _in_round(standing: Standing, number: int) -> Sequence[Flags]:
    if not number:
        return cells_of(standing.tune)
    before = [row for row in standing.rows if row.round == number - 1]
    stages = rounds_of(standing.tune)
    # A grid that was made smaller since may have fewer rounds than were measured.
    return survivors(before, stages[number].cells, standing.tune.objective) if number < len(stages) else ()


def born(pid: int) -> float:
    """When a process began; nought where there is none, or only what is left of one that was killed."""
    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.Error:
        return 0.0


def is_alive(present: Present | None) -> bool:
    return present is not None and not present.ended and abs(born(present.pid) - present.born) < _SAME_S


def ask_to_stop(present: Present) -> None:
    """In good order, as Ctrl-C would; never a process that only has the number of the one that is gone."""
    if is_alive(present):
        os.kill(present.pid, signal.SIGTERM)
