"""`swarmtui tune --auto` on real processes: it finds the flags, and survives what servers and users do to it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import FoundProcess, Sandbox, open_sandbox, send_signal, wait_until

# It takes the flags of llama-server. Some of their values crash it, let it hang, or make it answer garbage.
SERVER = """\
#!PYTHON
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
port, home = flags["--port"], Path(__file__).parent
if flags.get("--ubatch-size") == "1024":
    sys.exit("loading model\\nggml_cuda: out of memory: tried to allocate 20 GiB")
if flags.get("--batch-size") == "4096":
    print("warming up", flush=True)
    time.sleep(600)
if flags.get("--threads") == "2":
    sys.exit("error: invalid argument: --threads")
if "taken" in flags.get("-m", "") and not (home / "was-taken").exists():
    (home / "was-taken").touch()
    sys.exit("bind: Address already in use")


class Garbage(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(b"\\x00\\xff garbage")

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if flags.get("--flash-attn") == "off":
    ThreadingHTTPServer(("127.0.0.1", int(port)), Garbage).serve_forever()
words = [sys.executable, "-m", "swarmtui.sim", "moe-tp1", "--speed=3", f"--port={port}"]
os.execv(sys.executable, [*words, f"--slots={flags.get('-np', '1')}"])
"""

PLAN = ("--objective", "tok_s", "--levels", "4", "--requests", "2C", "--max-tokens", "16", "--ready-within", "12s")
SLOTS = "--parallel=1,4"


def auto_command(sandbox: Sandbox, *more: str, model: str = "m.gguf", budget: str = "10m") -> tuple[str, ...]:
    script = sandbox.home / "llama-server"
    if not script.exists():
        script.write_text(SERVER.replace("PYTHON", sys.executable))
        script.chmod(0o700)
    command = f"{script} -m {model} --port {{port}} -np 1"
    where = ("--session-dir", str(sandbox.sessions))
    return ("tune", "--auto", command, "--budget", budget, *PLAN, *where, "--yes", *more)


def knobs(*values: str) -> tuple[str, ...]:
    return tuple(word for value in values for word in ("--knob", value))


def starts(sandbox: Sandbox) -> list[dict[str, Any]]:
    found = list(sandbox.sessions.glob(".tuning/*/tune.json"))
    document: dict[str, Any] = json.loads(found[0].read_bytes()) if found else {"starts": []}
    rows: list[dict[str, Any]] = document["starts"]
    return rows


def server_processes(sandbox: Sandbox) -> list[FoundProcess]:
    parts = ("llama-server -m", "swarmtui.sim", "server_guardian")
    return [process for part in parts for process in sandbox.processes(part) if "--auto" not in process.command_line]


# The sandbox, and what the tune printed.
Tuned = tuple[Sandbox, dict[str, Any]]


def test_tune_with_flags_that_help_crash_hang_or_answer_garbage(tmp_path: Path) -> None:
    """One tune for all checks: it takes most of a minute."""
    with open_sandbox(tmp_path) as sandbox:
        tried = knobs(
            "--threads=1,2", SLOTS, "--ubatch-size=512,1024", "--batch-size=2048,4096", "--flash-attn=auto,off"
        )
        ran = sandbox.run(*auto_command(sandbox, *tried, "--json"))
        assert ran.code == 0, ran
        tuned = sandbox, json.loads(ran.out)
        check_finds_the_flag_that_helps_and_ab_confirms_it(tuned)
        check_crash_hang_unknown_flag_and_garbage_are_failures_with_their_reason(tuned)
        check_result_is_one_experiment_with_page_log_row_and_no_process_left(tuned)
        check_same_command_shows_the_result_and_starts_nothing(tuned)


def check_finds_the_flag_that_helps_and_ab_confirms_it(tuned: Tuned) -> None:
    found = tuned[1]
    # A flag without effect may stay beside it, as the noise of a busy machine decides.
    assert found["code"] == "confirmed" and found["flags"]["--parallel"] == 4, found["sentence"]
    assert re.search(r"--parallel 1 → 4(, --\S+ \S+)*: .*confirmed by ab \(\d+ v \d+ starts\)", found["sentence"])
    assert found["decision"]["word"] == "faster" and found["after"] > found["before"]
    assert " -np 4" in found["command"] and " -np 1" in found["given"]


def check_crash_hang_unknown_flag_and_garbage_are_failures_with_their_reason(tuned: Tuned) -> None:
    by_flag = {name: row for row in reversed(tuned[1]["failed"]) for name in row["flags"] if name != "--parallel"}
    assert by_flag["--ubatch-size"]["line"] == "ggml_cuda: out of memory: tried to allocate 20 GiB"
    assert "not ready within 12 s" in by_flag["--batch-size"]["reason"]
    if len(os.sched_getaffinity(0)) > 1:  # more threads than cores are not tried
        assert by_flag["--threads"]["line"] == "error: invalid argument: --threads"
    assert "failed" in by_flag["--flash-attn"]["reason"] or "measured" in by_flag["--flash-attn"]["reason"]
    assert len(by_flag.keys() - {"--threads"}) == 3


def check_result_is_one_experiment_with_page_log_row_and_no_process_left(tuned: Tuned) -> None:
    sandbox, found = tuned
    (page,) = sandbox.sessions.glob(".tuning/*/result.html")
    assert "confirmed by ab" in page.read_text() and "<script" not in page.read_text()
    assert json.loads(page.with_name("result.json").read_bytes())["sentence"] == found["sentence"]
    (change,) = sandbox.json("sessions", "log", "--json", "--session-dir", str(sandbox.sessions))
    assert change["verdict"] == "faster"
    assert found["session"] in [row["id"] for row in sandbox.list_sessions()]
    assert server_processes(sandbox) == []


def check_same_command_shows_the_result_and_starts_nothing(tuned: Tuned) -> None:
    sandbox, found = tuned
    before = starts(sandbox)
    tried = knobs("--threads=1,2", SLOTS, "--ubatch-size=512,1024", "--batch-size=2048,4096", "--flash-attn=auto,off")
    ran = sandbox.run(*auto_command(sandbox, *tried))
    assert ran.code == 0 and " ".join(ran.out.split()).startswith(found["sentence"][:40]), ran
    assert starts(sandbox) == before


def test_killed_tune_leaves_no_server_and_repeats_no_start(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        # On a busy host it would start servers for minutes until it is sure.
        words = auto_command(sandbox, *knobs(SLOTS), "--json", budget="25s")
        program = sandbox.start(*words)
        wait_until(lambda: len(starts(sandbox)) >= 2 and server_processes(sandbox), "a third start")
        send_signal(program.pid, signal.SIGKILL)
        wait_until(lambda: not server_processes(sandbox), "the server is stopped")
        finished = starts(sandbox)
        ran = sandbox.run(*words)
        assert ran.code == 0, ran
        assert starts(sandbox)[: len(finished)] == finished
        # A busy host is a reason not to be sure.
        assert json.loads(ran.out)["code"] not in ("running", "no_baseline")
        screened = [row["flags"] for row in starts(sandbox) if row["step"] == "screen"]
        assert screened[:3] == [{}, {"--parallel": 4}, {}]
        wait_until(
            lambda: not server_processes(sandbox) and not sandbox.processes("session_process"), "no process left"
        )


@pytest.mark.parametrize("victim", ["swarmtui.sim", "server_guardian", "swarmtui.session_process"])
def test_start_that_somebody_killed_is_repeated(tmp_path: Path, victim: str) -> None:
    with open_sandbox(tmp_path) as sandbox:
        # With a budget that ends after the first starts: the one that was killed is repeated all the same.
        program = sandbox.start(*auto_command(sandbox, *knobs(SLOTS), "--json", budget="5s"))
        wait_until(lambda: sandbox.processes("swarmtui.sim"), "the server runs")
        wait_until(lambda: sandbox.processes("swarmtui.loadgen"), "requests are sent")
        for process in sandbox.processes(victim)[:1]:
            send_signal(process.pid, signal.SIGKILL)
        ran = program.wait()
        assert ran.code == 0 and "started again" in ran.err, ran
        assert all(row["state"] == "done" for row in starts(sandbox)), starts(sandbox)
        wait_until(lambda: not server_processes(sandbox), "no server left")


def test_requests_may_fail_before_the_exit_of_the_server_is_reported(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        program = sandbox.start(*auto_command(sandbox, *knobs(SLOTS), "--json", budget="5s"))
        wait_until(lambda: sandbox.processes("swarmtui.loadgen"), "requests are sent")
        guardians = sandbox.processes("server_guardian")
        for process in guardians:
            send_signal(process.pid, signal.SIGSTOP)
        for process in sandbox.processes("swarmtui.sim"):
            send_signal(process.pid, signal.SIGKILL)
        wait_until(lambda: not sandbox.processes("swarmtui.session_process"), "the session has ended")
        for process in guardians:
            send_signal(process.pid, signal.SIGCONT)
        ran = program.wait()
        assert ran.code == 0 and "was killed by signal 9; started again" in ran.err, ran


def test_port_that_was_taken_is_not_held_against_the_flags(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        ran = sandbox.run(*auto_command(sandbox, *knobs(SLOTS), "--json", model="taken.gguf", budget="5s"))
        assert ran.code == 0 and "started again" in ran.err, ran
        assert [row["state"] for row in starts(sandbox)][:1] == ["done"]


def test_recipe_is_tried_first_and_what_is_found_can_be_saved_as_one(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        recipe, saved = tmp_path / "recipe.toml", tmp_path / "saved.toml"
        recipe.write_text(
            'engine = "llama.cpp"\ngpu = "RTX 3090"\n[flags]\n"-np" = 4\n[values]\n"--parallel" = [1, 2, 4]\n'
        )
        more = ("--recipe", str(recipe), "--save-recipe", str(saved), "--json")
        ran = sandbox.run(*auto_command(sandbox, *more, budget="15s"))
        assert ran.code == 0, ran
        found = json.loads(ran.out)
        assert [row["flags"] for row in starts(sandbox)[:2]] == [{}, {"--parallel": 4}]
        assert found["recipe"] == [{"knob": "--parallel", "yours": 1, "recipe": 4}] and found["recipe_gain"] > 0
        written = tomllib.loads(saved.read_text())
        assert (written["engine"], written["flags"]) == ("llama.cpp", found["flags"]) and found["flags"]
        recipe.write_text('engine = "vLLM"\n[flags]\n"--max-num-seqs" = 4\n')
        assert "--recipe: is for vLLM" in sandbox.run(*auto_command(sandbox, *more)).error_line(2)


def test_command_that_fails_is_said_with_its_log(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        words = list(auto_command(sandbox, *knobs(SLOTS), "--json"))
        words[2] += " --ubatch-size 1024"
        ran = sandbox.run(*words)
        assert ran.code == 3, ran
        assert json.loads(ran.out)["sentence"].endswith("ggml_cuda: out of memory: tried to allocate 20 GiB")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "give FILE, or --auto COMMAND"),
        (("--auto", "vllm serve M"), "put {port} into the command"),
        (("--auto", "vllm {port}", "--budget", "soon"), "--budget: "),
        (("--auto", "x {port}", "--knob", "slots"), "is not a flag with values"),
        (("--auto", "x {port}", "--engine", "y"), "no knobs are known"),
        (("--auto", "x {port}", "--yes"), "no flags are known for this command"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, words: tuple[str, ...], error: str) -> None:
    with open_sandbox(tmp_path) as sandbox:
        assert error in sandbox.run("tune", *words, "--session-dir", str(sandbox.sessions)).error_line(2)


def test_flags_and_values_are_shown_before_anything_is_started(tmp_path: Path) -> None:
    with open_sandbox(tmp_path) as sandbox:
        words = [word for word in auto_command(sandbox, *knobs(SLOTS)) if word != "--yes"]
        ran = sandbox.run(*words)
        assert "add --yes" in ran.error_line(2)
        assert "llama-server -m m.gguf --port PORT -np 1" in ran.err and "--parallel: 1, 4" in ran.err
        assert starts(sandbox) == []
