"""Compare a session recorded on an H200 with readings taken separately during the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from swarmtui.analysis.machine.energy import energy_used
from swarmtui.report.session import result_tables
from swarmtui.report.text import paint
from swarmtui.sessions.store import load_session, summarise

RECORDED = Path(__file__).parent / "recorded"

# Differences of NVML's energy counter over each level, in joules, read by another program during the run.
JOULES = {1: 5921.9, 4: 6713.9, 16: 9698.1}


def test_energy_agrees_with_a_separate_reading_of_the_counter() -> None:
    loaded = load_session(RECORDED, "last")
    ended = {end.number: end.t_ns for end in loaded.journal.ends}
    stages = {stage.c: (stage.t_ns, ended[stage.number]) for stage in loaded.journal.stages if stage.phase == "level"}
    for level in summarise(loaded).levels:
        found = energy_used(loaded.journal.telemetry, [stages.pop(level.c)], level.tokens_out)
        assert found is not None and found.joules == pytest.approx(JOULES[level.c], rel=0.02)
        assert level.energy is not None and level.energy.tokens_per_j is not None and level.energy.mean_w is not None
        assert level.energy.tokens_per_j == pytest.approx((level.headline_tps or 0.0) / level.energy.mean_w)
    assert not stages


def test_power_rises_and_energy_per_token_falls_with_concurrency() -> None:
    energies = [level.energy for level in summarise(load_session(RECORDED, "last")).levels]
    watts = [energy.mean_w for energy in energies if energy and energy.mean_w is not None]
    joules = [energy.j_per_token for energy in energies if energy and energy.j_per_token is not None]
    assert len(watts) == len(joules) == 3
    assert watts == sorted(watts)
    assert joules == sorted(joules, reverse=True)


def test_server_process_and_flags_were_found() -> None:
    (server,) = summarise(load_session(RECORDED, "last")).servers
    assert server.pid == 468
    assert server.flags is not None and server.flags["dtype"] == "bfloat16"


def test_machine_table_shows_each_level() -> None:
    table = paint(result_tables(summarise(load_session(RECORDED, "last"))))
    _, _, machine = table.partition("Machine\n")
    _, head, _, *rows = machine.splitlines()
    assert "GPU W" in head and "J/token" in head and "SIMULATED" not in table
    assert [row.split("|")[1].strip() for row in rows[:3]] == ["1", "4", "16"]


def test_detail_has_the_same_bytes_with_any_hash_seed(tmp_path: Path) -> None:
    """Sums over the GPUs of a session must not depend on the order of a set."""
    journal = next(Path(__file__).parents[1].glob("tui/recorded/*7ec6/journal.jsonl"))
    code = "import pathlib, sys; from swarmtui.sessions import store; store.write_summary(pathlib.Path(sys.argv[1]))"
    written = set()
    for seed in ("1", "2"):
        directory = tmp_path / seed / journal.parent.name
        directory.mkdir(parents=True)
        shutil.copy(journal, directory)
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", code, str(directory)], env=environment, check=True)
        written.add((directory / "detail.json").read_bytes())
    assert len(written) == 1
