"""Build tunes on disk for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from swarmtui.experiments.store import process_start_time, write_experiment
from swarmtui.model.tuning import ExperimentStatus, Flags, Halving, Start, Tune, TuneFile

SLOTS = TuneFile(
    command="serve --port {port}", name="slots", grid={"--slots": (1, 2, 4), "--fast": (False, True)}
)  # fmt: skip
HALVED = TuneFile(
    command="serve --port {port}",
    name="halved",
    grid={"--slots": (1, 2, 4, 8)},
    halving=Halving(factor=2, rounds=2),
    restarts=0,
)

ONE: Flags = {"--slots": 1, "--fast": False}
TWO: Flags = {"--slots": 2, "--fast": False}
FOUR: Flags = {"--slots": 4, "--fast": False}


def done(flags: Flags, tps: float, number: int = 0, **fields: Any) -> Start:
    defaults: dict[str, Any] = {
        "c": 4,
        "ttft_s": 50.0 / tps,
        "start_s": 1.25,
        "errors": 0,
        "runs": (tps,),
        "session": "s",
    }
    return Start(flags=flags, round=number, state="done", out_tps=tps, **(defaults | fields))


def failed(flags: Flags, reason: str, *log: str) -> Start:
    return Start(flags=flags, state="broken", reason=reason, log=log)


def tune_status(**fields: Any) -> ExperimentStatus:
    """The status of a tune that runs in this process, and is therefore alive."""
    return ExperimentStatus(
        **({"pid": os.getpid(), "born": process_start_time(os.getpid()), "begun": 1_000.0, "since": 1_042.0} | fields)
    )


def write_tune_directory(directory: Path, tune: TuneFile, rows: list[Start], now: ExperimentStatus) -> Path:
    write_experiment(directory, "tune", Tune(definition=tune, starts=tuple(rows), status=now))
    return directory
