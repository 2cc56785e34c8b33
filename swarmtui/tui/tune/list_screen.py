"""The list of all tunes, newest first: progress and the best configuration of each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from textual.app import ComposeResult

from swarmtui.experiments.grid import configuration_statuses
from swarmtui.experiments.groups import tune_result
from swarmtui.experiments.store import read_tune, tune_directories
from swarmtui.model.base import BadInput
from swarmtui.numbers import local_time
from swarmtui.report.table import Cell, Code, Column, Row, Table
from swarmtui.tui.base_screens import CursorScreen, KeyFooter
from swarmtui.tui.table_list import TableList
from swarmtui.tui.textual_patches import run_in_background

_EMPTY = "no tunes yet: `swarmtui tune FILE` starts one; `swarmtui tune --help` shows an example file"
_RELOAD_S = 2.0
_CODES: dict[str, Code] = {"tuning": "best", "done": "ok", "failed": "failed", "interrupted": "failed"}
_COLUMNS = (
    Column[Any]("name", "tune", right=False, least=14),
    Column[Any]("started", "started", right=False),
    Column[Any]("state", "state", right=False),
    Column[Any]("done", "done"),
    Column[Any]("best", "result", right=False, least=32),
)


def tune_row(directory: Path) -> Row:
    """A tune that cannot be read has the reason in place of its best configuration."""
    try:
        tune, problem = read_tune(directory), "was deleted"
    except BadInput as error:
        tune, problem = None, str(error)
    if tune is None:
        return Cell(directory.name), Cell(""), Cell("unreadable", "note"), Cell(""), Cell(problem)
    configurations, state = configuration_statuses(tune), tune.status.ended or "tuning"
    finished = sum(configuration.state in ("done", "broken") for configuration in configurations)
    return (
        Cell(tune.definition.name),
        Cell(local_time(tune.status.begun), "detail"),
        Cell(state, _CODES.get(state, "note")),
        Cell(f"{finished} of {len(configurations)}"),
        Cell(tune_result(tune) or "no finished configuration yet"),
    )


class TuneListScreen(CursorScreen):
    """Reloads regularly: a tune may be running."""

    key_context = "tunes"

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def compose(self) -> ComposeResult:
        yield TableList("tunes")
        yield KeyFooter()

    def on_mount(self) -> None:
        run_in_background(self, self._follow)

    async def _follow(self) -> None:
        while True:
            directories = await asyncio.to_thread(tune_directories, self._root)
            rows = [await asyncio.to_thread(tune_row, directory) for directory in directories]
            ids = [str(directory) for directory in directories]
            table = Table("", _COLUMNS, tuple(rows), drop=("started",))
            self.query_one(TableList).show(table.part, ids, "newest first", _EMPTY)
            await asyncio.sleep(_RELOAD_S)

    def action_open(self) -> None:
        if selected := self.query_one(TableList).selected:
            self.app.open_screen("tune", Path(selected))
