"""Tunes on disk, made up for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from swarmtui.experiments.tune_status import born
from swarmtui.experiments.tune_store import add_row, write_present, write_tune
from swarmtui.model.tuning import CellRow, Flags, Halving, Present, TuneFile, TuneState

SEATS = TuneFile(
    command="serve --port {port}", name="seats", grid={"--seats": (1, 2, 4), "--fast": (False, True)}
)  # fmt: skip
HALVED = TuneFile(
    command="serve --port {port}", name="halved", grid={"--seats": (1, 2, 4, 8)}, halving=Halving(factor=2, rounds=2)
)

ONE: Flags = {"--seats": 1, "--fast": False}
TWO: Flags = {"--seats": 2, "--fast": False}
FOUR: Flags = {"--seats": 4, "--fast": False}


def done(flags: Flags, tps: float, number: int = 0, **fields: Any) -> CellRow:
    made: dict[str, Any] = {"c": 4, "ttft_s": 50.0 / tps, "start_s": 1.25, "errors": 0, "runs": (tps,), "session": "s"}
    return CellRow(flags=flags, round=number, state="done", out_tps=tps, **(made | fields))


def broken(flags: Flags, reason: str, *log: str) -> CellRow:
    return CellRow(flags=flags, state="broken", reason=reason, log=log)


def present(**fields: Any) -> Present:
    """Of this process: it is alive as long as the test is."""
    return Present(**({"pid": os.getpid(), "born": born(os.getpid()), "begun": 1_000.0, "since": 1_042.0} | fields))


def kept(directory: Path, tune: TuneFile, rows: list[CellRow], now: Present | None) -> Path:
    directory.mkdir(parents=True)
    write_tune(directory, tune)
    state = TuneState(name=tune.name)
    for row in rows:
        state = add_row(directory, state, row)
    if now is not None:
        write_present(directory, now)
    return directory
