"""Killing processes and stopping runs: finished requests are saved, and no process is left running."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from swarmtui.sessions.index import list_sessions
from tests.cli.programs import SIM, TIMEOUT_S, Sandbox, send_signal, wait_until
from tests.cli.scripted_server import (
    ReceivedRequest,
    ScriptedHandler,
    respond_with_words,
    scripted_server,
)
from tests.faults.kill_checks import (
    ANSWER,
    ENDLESS,
    LOAD,
    SESSION_PROCESS,
    WORKER,
    HoldingResponder,
    assert_interrupted_session,
    assert_no_processes,
    assert_run_completes,
    assert_saved_message,
    assert_stopped_session,
    pid_of,
    processed,
    saved,
    three_endless_streams,
    wait_for_idle_workers,
    wait_for_responses,
    wait_until_saved,
)

# A larger number finds more: SWARMTUI_KILL_ROUNDS=50.
ROUNDS = range(int(os.environ.get("SWARMTUI_KILL_ROUNDS", "1")))


@pytest.mark.parametrize("seed", ROUNDS)
def test_killed_worker_loses_no_finished_request(sandbox: Sandbox, seed: int) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, seed)
        worker, expected = pid_of(sandbox, WORKER), processed(server)
        os.kill(worker, signal.SIGKILL)
        ran = command.wait()
    assert_saved_message(ran)
    assert "worker 0" in ran.err and "SIGKILL" in ran.err
    assert_interrupted_session(sandbox, expected)
    assert_no_processes(sandbox)


@pytest.mark.parametrize("seed", ROUNDS)
def test_killed_session_process_loses_no_finished_request(sandbox: Sandbox, seed: int) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, seed)
        session_process, expected = pid_of(sandbox, SESSION_PROCESS), processed(server)
        os.kill(session_process, signal.SIGKILL)
        ran = command.wait()
        assert_no_processes(sandbox)
    assert_saved_message(ran)
    assert "the session process was killed" in ran.err
    assert_interrupted_session(sandbox, expected)


@pytest.mark.parametrize("seed", ROUNDS)
def test_killed_client_does_not_end_the_run(sandbox: Sandbox, seed: int) -> None:
    holding = HoldingResponder(20 + seed)
    with scripted_server(holding) as server:
        command = sandbox.start_benchmark(server.url, *LOAD, "--requests", "70", "--complete")
        wait_until(lambda: len(server.completed) >= 20 + seed, "some responses")
        command.process.kill()
        assert command.wait().code == -signal.SIGKILL
        assert sandbox.processes(SESSION_PROCESS)
        holding.release.set()
        assert_run_completes(sandbox, server, 70)


@pytest.mark.parametrize("seed", ROUNDS[:1])
def test_simulator_ends_with_killed_session_process(sandbox: Sandbox, seed: int) -> None:
    command = sandbox.start_benchmark(SIM, "--levels", "4", "--requests", "100000", "--max-tokens", "20")
    wait_until(lambda: sandbox.sessions.exists() and enough_lines(sandbox), "some requests in the journal")
    os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
    ran = command.wait()
    assert_no_processes(sandbox)
    assert_saved_message(ran)
    assert list_sessions(sandbox.sessions)[0].state == "interrupted"


def test_one_of_two_workers_killed(sandbox: Sandbox) -> None:
    """Requests finished by the other one are saved too."""
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, "--workers", "2")
        wait_for_responses(server, 0)
        wait_until(lambda: len(sandbox.processes(WORKER)) == 2, "two workers")
        worker, expected = sandbox.processes(WORKER)[0].pid, processed(server)
        os.kill(worker, signal.SIGKILL)
        assert_saved_message(command.wait())
        assert_interrupted_session(sandbox, expected)
        assert_no_processes(sandbox)


def test_session_process_that_hung_before_it_was_killed(sandbox: Sandbox) -> None:
    """Requests that finished while it hung are spooled by the worker."""
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 5)
        session_process = pid_of(sandbox, SESSION_PROCESS)
        os.kill(session_process, signal.SIGSTOP)
        expected = wait_for_idle_workers(sandbox, server)
        os.kill(session_process, signal.SIGKILL)
        assert_saved_message(command.wait())
        assert_no_processes(sandbox)
    assert (sandbox.session / "spool-0.jsonl").exists()
    assert_interrupted_session(sandbox, expected)


LONG_WORDS = respond_with_words(6, gap_s=0.01, text="a" * 30)


def checked_workload(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the options of a workload whose regular expression does not come to an end."""
    path = sandbox.home / "checked.toml"
    path.write_text(
        "name = 'checked'\nkind = 'prompts'\n[[prompts]]\ntext = 'Count'\ncheck = { regex = ['(\\w+ ?)+!$'] }\n"
    )
    return ("--workload", str(path), "--warmup", "none", "--no-gpu", "--levels", "2")


def test_killed_session_process_loses_no_request_whose_answer_is_checked(sandbox: Sandbox) -> None:
    """Agents do not wait for the check of their last answer."""
    with scripted_server(LONG_WORDS) as server:
        command = sandbox.start_benchmark(server.url, *checked_workload(sandbox), "--requests", "100000")
        wait_for_responses(server, 12)
        expected = processed(server)
        os.kill(pid_of(sandbox, SESSION_PROCESS), signal.SIGKILL)
        command.wait()
    assert_interrupted_session(sandbox, expected)
    assert_no_processes(sandbox)


def test_checks_that_do_not_end_count_as_not_found(sandbox: Sandbox) -> None:
    with scripted_server(LONG_WORDS) as server:
        ran = sandbox.run_benchmark(server.url, *checked_workload(sandbox), "--requests", "2", "--complete")
    assert ran.code == 0, ran
    found = sandbox.show_session()
    assert found["levels"][0]["verdicts"] == {"fail": 2}
    assert [event["name"] for event in found["events"]].count("check") == 1
    assert_no_processes(sandbox)


def test_one_of_two_workers_killed_while_session_process_hangs(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, "--workers", "2")
        wait_for_responses(server, 6)
        session_process = pid_of(sandbox, SESSION_PROCESS)
        os.kill(session_process, signal.SIGSTOP)
        expected = wait_for_idle_workers(sandbox, server)
        os.kill(sandbox.processes(WORKER)[0].pid, signal.SIGKILL)
        os.kill(session_process, signal.SIGCONT)
        assert_saved_message(command.wait())
        assert_interrupted_session(sandbox, expected)
        assert_no_processes(sandbox)


def test_journal_survives_killing_all_processes(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 1)
        pids = [process.pid for process in sandbox.processes()]
        assert len(pids) == 3
        expected = set(saved(sandbox))
        for pid in pids:  # the last of them may have ended with the others
            send_signal(pid, signal.SIGKILL)
        command.wait()
        assert_no_processes(sandbox)
        assert_interrupted_session(sandbox, expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_once_saves_and_prints_the_table(sandbox: Sandbox, number: signal.Signals) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 2)
        command.signal_group(number)
        ran = command.wait()
    assert_stopped_session(sandbox, ran, server)
    assert "stopping: " in ran.err
    # Requests in flight were completed.
    assert saved(sandbox).keys() == {response.id for response in server.completed}
    assert sandbox.show_session()["levels"][0]["unfinished"] == 0


def test_stopping_twice_does_not_wait_for_streams(sandbox: Sandbox) -> None:
    """The fourth stream's responses are kept, and the three cancelled ones are in no figure."""
    with scripted_server(three_endless_streams()) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_until(lambda: len(server.completed) >= 50, "some responses")
        command.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping: " in command.stderr_so_far(), "the first Ctrl-C was handled")
        wait_until(lambda: len(server.completed) == len(server.received) - 3, "only the endless streams are left")
        wait_until_saved(sandbox, server)
        command.signal_group(signal.SIGINT)
        ran = command.wait()
        assert_stopped_session(sandbox, ran, server)
        assert {response.id for response in server.completed} <= saved(sandbox).keys()
    (level,) = sandbox.show_session()["levels"]
    assert (level["unfinished"], level["errors"]) == (3, 0)


def test_stopping_twice_does_not_wait_for_token_counts(sandbox: Sandbox) -> None:
    """The server reports no usage, and does not respond when asked to count tokens."""
    counting = threading.Event()

    def respond(to: ScriptedHandler, request: ReceivedRequest) -> None:
        if request.path == "/tokenize":
            counting.set()
            to.rfile.read(1)
        respond_with_words(6, gap_s=0.01, usage=False)(to, request)

    with scripted_server(respond, tokenizes=True) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 7)
        command.signal_group(signal.SIGINT)
        assert counting.wait(TIMEOUT_S)
        assert command.process.poll() is None
        command.signal_group(signal.SIGINT)
        assert_stopped_session(sandbox, command.wait(), server)
        assert saved(sandbox).keys() == {response.id for response in server.completed}


def test_stopping_before_the_first_response(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_words(100, gap_s=60.0)) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_until(lambda: len(server.received) == 4, "four requests")
        command.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping: " in command.stderr_so_far(), "the first Ctrl-C was handled")
        command.signal_group(signal.SIGINT)
        ran = command.wait()
    assert ran.code == 4 and "Traceback" not in ran.err
    assert_no_processes(sandbox)


def test_stopping_while_the_endpoint_is_inspected(sandbox: Sandbox) -> None:
    def silent(to: ScriptedHandler) -> None:
        threading.Event().wait(TIMEOUT_S)

    with scripted_server(listing=silent) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS, forked=False)
        wait_until(lambda: "starting" in command.stderr_so_far(), "it began")
        command.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping: " in command.stderr_so_far(), "the first Ctrl-C was handled")
        command.signal_group(signal.SIGINT)
        ran = command.wait()
    assert ran.code == 4, ran
    assert_no_processes(sandbox)


def test_a_pipe_as_the_workload_is_refused(sandbox: Sandbox) -> None:
    """It is never written to: reading it would never end."""
    os.mkfifo(sandbox.home / "slow.toml")
    ran = sandbox.run_benchmark("127.0.0.1:9", "--workload", str(sandbox.home / "slow.toml"))
    assert (ran.code, ran.out) == (2, "") and "slow.toml: cannot be read: not a regular file" in ran.err
    assert_no_processes(sandbox)


def test_hangup_does_not_end_the_run(sandbox: Sandbox) -> None:
    """When an SSH connection drops, the terminal's process group gets SIGHUP."""
    holding = HoldingResponder(20)
    with scripted_server(holding) as server:
        command = sandbox.start_benchmark(server.url, *LOAD, "--requests", "60", "--complete")
        wait_until(lambda: len(server.completed) >= 20, "some responses")
        command.signal_group(signal.SIGHUP)
        assert command.wait().code == -signal.SIGHUP
        holding.release.set()
        assert_run_completes(sandbox, server, 60)


def test_sigterm_to_the_session_process_stops_and_saves(sandbox: Sandbox) -> None:
    with scripted_server(ANSWER) as server:
        command = sandbox.start_benchmark(server.url, *ENDLESS)
        wait_for_responses(server, 4)
        send_signal(pid_of(sandbox, SESSION_PROCESS), signal.SIGTERM)
        assert_stopped_session(sandbox, command.wait(), server)


def enough_lines(sandbox: Sandbox) -> bool:
    journals = list(sandbox.sessions.glob("*/journal.jsonl"))
    return bool(journals) and journals[0].read_bytes().count(b"\n") > 20
