"""What commands write to a terminal or a pipe: no escape sequences of others, no fault if the reader leaves."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from tests.cli.programs import Sandbox

ESC = "\x1b"
FORGED = f"echo safe {ESC}[2K{ESC}[1A{ESC}]52;c;cm0=\x07 \u202e"


def test_tune_confirmation_shows_what_runs(sandbox: Sandbox) -> None:
    """A command that erases itself from the screen is shown escaped, on one line, and so are all configurations."""
    path = sandbox.home / "grid.toml"
    text = FORGED.replace(ESC, "\\u001b").replace("\x07", "\\u0007").replace("\u202e", "\\u202e")
    values = ", ".join(f'"v{number}"' for number in range(40))
    path.write_text(
        f'command = "{text} \'a\\nb\' {{port}} {{--x}}"\nstop = "stop {{--x}} \\u001b[8m"\n'
        'directory = "/tmp/\\u001b[8m"\n'
        f'env = {{ "A\\u001b" = "\\u001bc" }}\n[grid]\n"--x" = [{values}]\n'
    )
    ran = sandbox.run("tune", str(path), "--session-dir", str(sandbox.sessions))
    assert ran.code == 2 and "add --yes" in ran.err
    assert not {ESC, "\x07", "\u202e", "\r"} & set(ran.err)
    lines = [line for line in ran.err.splitlines() if line.startswith("  ")]
    assert len(lines) == 40 and all("\\u001b[2K" in line and "a\\u000ab" in line for line in lines)
    assert [f"v{number}" in line for number, line in enumerate(lines)] == [True] * 40
    assert ran.err.count("stop command: stop v") == 40 and "directory: /tmp/\\u001b[8m" in ran.err


def test_ab_confirmation_is_escaped(sandbox: Sandbox) -> None:
    ran = sandbox.run("ab", "--a", f"{FORGED} {{port}}", "--aa", "--session-dir", str(sandbox.sessions))
    assert ran.code == 2 and ESC not in ran.err and "\\u001b[2K" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--endpoint", f"http://{ESC}]0;x\x07"),
        ("run", f"--{ESC}[31m"),
        (f"{ESC}[31m",),
        ("sessions", "show", f"{ESC}[2J"),
        ("compare", f"{ESC}[2J", "b"),
        ("workloads", "show", f"{ESC}[2J"),
        ("tune", f"{ESC}[2J.toml"),
        ("run", "--endpoint", "127.0.0.1:9", "--tag", ESC),
    ],
)
def test_errors_escape_what_the_user_typed(sandbox: Sandbox, words: tuple[str, ...]) -> None:
    ran = sandbox.run(*words)
    assert ran.code == 2 and ran.err and ESC not in ran.out + ran.err, ran


def test_errors_escape_keys_of_config_toml(sandbox: Sandbox) -> None:
    config = sandbox.home / ".config" / "swarmtui" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('"\\u001b]52;c;cm0=\\u0007" = 1\n["\\u001b[2J"]\n')
    for words in (("discover",), ("run", "--endpoint", "a")):
        error = sandbox.run(*words).error_line(2)
        assert ESC not in error and "\\u001b]52" in error


def test_closed_stdout_is_no_fault(sandbox: Sandbox) -> None:
    for words in (["--help"], ["sim", "--list"], ["schema", "journal"], ["workloads", "show", "coding"]):
        command = subprocess.Popen(
            [sys.executable, "-P", "-m", "swarmtui", *words],
            env=sandbox.environment, cwd=sandbox.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        err = command.stderr.read()
        assert (command.wait(60), err) == (0, b""), words


def test_output_that_cannot_be_written_is_one_line(sandbox: Sandbox) -> None:
    full = ["sh", "-c", 'exec "$@" > /dev/full', "sh"]
    error = sandbox.run("schema", "journal", before=full).error_line(2)
    assert error == "swarmtui: the output could not be written: No space left on device"


def test_full_pipe_that_does_not_block_is_waited_for(sandbox: Sandbox) -> None:
    """Another program at the same terminal or pipe may have made it so."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "swarmtui", "schema", "journal"]
    with (
        subprocess.Popen(command, env=sandbox.environment, stdout=write_end, stderr=subprocess.PIPE) as process,
        os.fdopen(read_end) as reader,
    ):
        os.close(write_end)
        text = reader.read()
        assert process.stderr is not None and (process.wait(60), process.stderr.read()) == (0, b"")
    assert len(text) > 4096 and json.loads(text)


def test_closed_stdin_is_no_fault(sandbox: Sandbox) -> None:
    (sandbox.home / "grid.toml").write_text('command = "x {port}"\n[grid]\n"--x" = [1]\n')
    closed = ["sh", "-c", 'exec "$@" <&-', "sh"]
    assert "add --yes" in sandbox.run("tune", str(sandbox.home / "grid.toml"), before=closed).error_line(2)


def test_own_fault_has_its_own_exit_code(sandbox: Sandbox) -> None:
    """One line and exit code 70: 1 means that a limit was missed."""
    folder = sandbox.home / "fault"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import swarmtui.sessions.index as index\n"
        "def fail(*args): raise ZeroDivisionError('injected \\x1b[2J')\n"
        "index.list_sessions = fail\n"
    )
    env = {"PYTHONPATH": f"{folder}:{sandbox.environment['PYTHONPATH']}", "XDG_STATE_HOME": str(sandbox.home / "state")}
    ran = sandbox.start("sessions", env=env, forked=False).wait()  # its modules are imported after the fault
    report = sandbox.home / "state" / "swarmtui" / "crash.txt"
    assert ran.error_line(70) == (
        f"swarmtui: internal error, ZeroDivisionError: injected \\u001b[2J; details: {report}"
    )
    assert "Traceback" in report.read_text()
