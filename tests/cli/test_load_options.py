"""Options of the load modes, and combinations that are refused."""

from __future__ import annotations

import pytest

from tests.cli.programs import SIM, Sandbox


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--rate", "5", "--levels", "1,2"), "--rate"),
        (("--rate", "0"), "--rate"),
        (("--arrival", "gamma"), "--arrival"),
        (("--find-cliff", "--levels", "1,2"), "--find-cliff"),
        (("--find-cliff", "--runs", "2"), "--find-cliff"),
        (("--workload", "orchestrator-dag", "--levels", "2"), "--levels"),
        (("--workload", "orchestrator-dag", "--rate", "2"), "--workload"),
        (("--workload", "s4-mixed-fastapi", "--find-cliff"), "--workload"),
        (("--workload", "s0-swarm-coding", "--requests", "4"), "--requests"),
        (("--workload", "s0-swarm-coding", "--duration", "4s"), "--duration"),
        (("--serial-rates", "4,5"), "--serial-rates"),
        (("--workload", "s2-swarm-50", "--serial-rates", "fast"), "--serial-rates"),
    ],
)
def test_conflicting_options_are_refused(sandbox: Sandbox, arguments: tuple[str, ...], error: str) -> None:
    ran = sandbox.run_benchmark(SIM, *arguments)
    assert ran.code == 2 and "Traceback" not in ran.err, ran
    assert error in ran.err
    assert not sandbox.sessions.exists()


def test_all_errors_of_a_workload_are_reported_at_once(sandbox: Sandbox) -> None:
    path = sandbox.home / "bad.toml"
    path.write_text(
        'kind = "prompts"\nname = "bad"\ncolour = 3\n'
        '[load]\nmode = "barrier"\nlevels = [1, "two"]\nserial = "perhaps"\nspeed = 4\n'
        '[[prompts]]\ntext = "a"\ncheck = { regex = ["(("] }\n'
        '[[prompts]]\ntext = "b"\ncheck = { schema = { type = "thing" } }\n'
        "[[prompts]]\ntext = 4\n"
    )
    ran = sandbox.run("workloads", "check", str(path))
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert all(line.startswith(f"swarmtui: {path}") for line in lines)
    keys = ("colour", "load.levels[1]", "load.serial", "load.speed", "prompts[0].check.regex[0]", "prompts[2].text")
    for key in (*keys, "prompts[1].check.schema.type"):
        assert sum(f" {key}: " in line for line in lines) == 1, (key, lines)
    assert len(lines) == 7
    assert sandbox.run_benchmark(SIM, "--workload", str(path)).error_line(2)
