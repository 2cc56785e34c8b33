"""`swarmtui compare` on sessions in virtual time: their figures do not depend on the machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from swarmtui.model.journal import Head, RequestEntry
from swarmtui.sessions.store import write_summary
from tests.cli.programs import Sandbox, TerminalProgram, open_sandbox
from tests.seeds.virtual_session import simulate_journal
from tests.sessions.session_builders import write_session


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The same plan with one slot and with eight, four runs each; and one with another output limit."""
    with open_sandbox(tmp_path_factory.mktemp("compared")) as sandbox:
        for number, (label, slots, cap) in enumerate((("one", 1, 32), ("eight", 8, 32), ("shorter", 8, 16))):
            journal = simulate_journal(
                f"moe-tp1?slots={slots}", "chat", seed=5, levels=(4,), runs=4, requests=8,
                max_tokens=cap,
            )  # fmt: skip
            session = msgspec.structs.replace(
                journal.head.session, id=f"20261115-01445{number}-3f9a", label=label,
                server_flags=f"--max-num-seqs {slots}",
            )  # fmt: skip
            requests = [RequestEntry(record=record) for record in journal.records]
            entries = [Head(session=session, pid=1), *journal.stages, *requests, *journal.ends, journal.end]
            write_session(sandbox.sessions / session.id, [entry for entry in entries if entry is not None])
            write_summary(sandbox.sessions / session.id)
        yield sandbox


def ids(sandbox: Sandbox) -> dict[str, str]:
    return {row["label"]: row["id"] for row in sandbox.list_sessions()}


def test_sessions_with_more_slots_differ_and_the_flag_is_shown(measured: Sandbox) -> None:
    names = ids(measured)
    ran = measured.run("compare", names["one"], names["eight"], "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert re.search(r"^Changed +--max-num-seqs 1 → 8 since the run of [0-9:]+$", ran.out, re.M), ran.out
    assert "| TTFT" in ran.out
    assert re.search(r"^Result +▲ faster with 4 agents: .* tok/s, \+\d.*95 % sure", ran.out, re.M), ran.out
    assert ran.out.count("95 % sure: ") == 1 and "Holm" not in ran.out
    assert ran.out.count("restarts of a server can differ, too: `swarmtui ab` tests that") == 1


def test_without_a_session_the_last_is_compared_with_the_one_before_it(measured: Sandbox) -> None:
    names = ids(measured)
    for arguments, pair in (
        ((), ("eight", "shorter")),
        ((names["eight"],), ("one", "eight")),
        ((names["one"],), ("one", "eight")),  # it is the first
        ((names["one"][4:], names["eight"][4:]), ("one", "eight")),
    ):
        found = measured.json("compare", *arguments, "--json", "--session-dir", str(measured.sessions))
        assert found["sessions"] == [names[label] for label in pair], arguments


def test_json_is_the_same_comparison(measured: Sandbox) -> None:
    names = ids(measured)
    arguments = ("compare", names["one"], names["eight"], "--json", "--session-dir", str(measured.sessions))
    found = measured.json(*arguments)
    assert found["sessions"] == [names["one"], names["eight"]]
    rows = {row["figure"]: row for row in found["pairs"][0]["rows"]}
    leading = rows["out_tps_steady"]
    assert (leading["c"], leading["verdict"]["word"]) == (4, "faster")
    assert leading["verdict"]["n_a"] == leading["verdict"]["n_b"] == 4
    assert leading["change"] == leading["after"] / leading["before"] - 1
    assert rows["ttft_s"]["verdict"] is None and rows["ttft_s"]["interval"]["high"] < 0


def test_different_output_limits_are_refused_with_the_reason(measured: Sandbox) -> None:
    names = ids(measured)
    ran = measured.run("compare", names["one"], names["shorter"], "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert "not comparable: different output caps: 32 and 16" in ran.out
    assert "not comparable" in ran.out and "differ:" not in ran.out


def test_several_sessions_have_a_leaderboard_and_a_baseline(measured: Sandbox) -> None:
    names = ids(measured)
    arguments = [names["one"], names["eight"], names["shorter"], "--baseline", names["eight"]]
    ran = measured.run("compare", *arguments, "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert ran.out.count(f"A: eight ({names['eight']})") == 2
    assert "best tok/s" in ran.out and "▸" in ran.out


def test_result_file_of_another_tool(measured: Sandbox) -> None:
    path = measured.home / "vllm.json"
    path.write_text(json.dumps({"completed": 16, "duration": 2.0, "output_throughput": 64.0, "max_concurrency": 4,
        "total_output_tokens": 128, "total_input_tokens": 160, "mean_ttft_ms": 10.0, "model_id": "m"}))  # fmt: skip
    ran = measured.run("compare", ids(measured)["one"], str(path), "--session-dir", str(measured.sessions))
    assert ran.code == 0, ran
    assert "not comparable: different workloads" in ran.out
    assert "| 64.0 |" in re.sub(" +", " ", ran.out)
    assert "client swarmtui 0 → vllm bench serve" in ran.out
    assert "note: vllm.json: imported from vllm bench serve: wall rates only, no steady rates" in ran.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("one",), "no session of that name"),
        (("nothing", "last"), "no session of that name"),
        (("last", "missing.json"), "cannot be read"),
    ],
)
def test_invalid_comparison_is_one_line(measured: Sandbox, arguments: tuple[str, ...], error: str) -> None:
    assert error in measured.run("compare", *arguments, "--session-dir", str(measured.sessions)).error_line(2)


def test_empty_session_directory(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        assert "no session" in sandbox.run(
            "compare", "last", "last", "--session-dir", str(sandbox.sessions)
        ).error_line(2)


@pytest.mark.parametrize(("rows", "repeated"), [(10, True), (90, False)])
def test_a_terminal_that_the_comparison_does_not_fit_ends_with_the_answer(
    measured: Sandbox, rows: int, repeated: bool
) -> None:
    names = ids(measured)
    arguments = ("compare", names["one"], names["eight"], "--session-dir", str(measured.sessions))
    terminal = TerminalProgram(measured, *arguments, rows=rows, columns=100)
    assert terminal.wait() == 0
    lines = [line.rstrip() for line in terminal.text().splitlines() if line.strip()]
    found = [number for number, line in enumerate(lines) if re.match(r"Result +▲ faster with 4 agents: ", line)]
    assert bool(found and found[-1] >= len(lines) - 2) is repeated and len(found) == 1, lines
    assert measured.run(*arguments).out.count("faster with 4 agents: ") == 1, "a pipe has it once"
