"""The script that causes faults on real servers works: here on the simulator, where a proxy halves the token counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.processes.spawn import start_simulator
from tests.cli.programs import ROOT
from tests.real.faults import only_the_host
from tests.real.proxy import halve_usage
from tests.real.results import Log, Outcome, Result, Row, table


def test_halved_counts_keep_their_length() -> None:
    line = b'data: {"usage":{"prompt_tokens":12,"completion_tokens":100,"total_tokens":112}}\n\n'
    assert halve_usage(line) == line.replace(b":100,", b": 50,")


def outcome(result: Result, seed: int = 1, **changes: Any) -> Outcome:
    return msgspec.structs.replace(
        Outcome(case="healthy", engine="vllm", healthy=True, seed=seed, result=result), **changes
    )


@pytest.mark.parametrize(("good", "bad", "differs"), [(19, 1, False), (18, 2, True), (3, 0, False), (3, 1, True)])
def test_a_round_in_twenty_may_be_doubtful_and_those_of_a_busy_host_do_not_count(
    good: int, bad: int, differs: bool
) -> None:
    rounds = [outcome("good")] * good + [outcome("differs", codes=("first_reads",))] * bad + [outcome("host")] * 3
    row = Row(rounds, 20, healthy=True)
    assert (row.good, row.counted, row.repeated, row.differs) == (good, good + bad, 3, differs)
    assert row.missing == 20 - good - bad and f"{good} of {good + bad}" in str(row)


def test_every_round_of_a_fault_must_name_it() -> None:
    assert Row([outcome("good", healthy=False)] * 9 + [outcome("differs", healthy=False)], 10, healthy=False).differs
    assert not Row(
        [outcome("good", healthy=False)] * 9 + [outcome("not caused", healthy=False)], 10, healthy=False
    ).differs


def test_a_busy_host_explains_delays_and_nothing_else() -> None:
    assert only_the_host(["host_pressure", "first_reads"])
    assert not only_the_host(["first_reads"]) and not only_the_host(["host_steal", "server_stall"])


def test_a_later_call_counts_the_rounds_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    first = Log(path, resume=False)
    first.add(outcome("good", seed=7, doubtful={"a": "b"}))
    first.add(outcome("host", seed=8, case="healthy-trace"))
    later = Log(path, resume=True)
    assert later.of("healthy", "vllm") == [outcome("good", seed=7, doubtful={"a": "b"})]
    assert (later.next_seed(1), Log(path, resume=False).next_seed(1)) == (9, 1)
    assert table(later.outcomes).splitlines() == [
        "               vllm       ", "healthy        1 of 1     ", "healthy-trace  0 of 0 (+1)",
    ]  # fmt: skip


def test_a_fault_on_a_running_server_is_counted(tmp_path: Path) -> None:
    simulator = start_simulator("moe-tp1?speed=5")
    try:
        words = ("--endpoint", simulator.url(), "--only", "kill-restart,halved-usage", "--times", "1", "--quiet", "0")
        command = [sys.executable, "-m", "tests.real", *words, "--dir", str(tmp_path)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        simulator.end()
    assert ran.returncode == 0, ran
    assert "not applicable" in ran.stdout and "1 of 1 named" in ran.stdout and "token_counts 1" in ran.stdout
