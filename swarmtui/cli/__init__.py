"""The command line of swarmtui: one module per group of commands."""

from __future__ import annotations

import gc
import io
import os
import select
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_MAX_DIGITS = 300


def main() -> None:
    """Run a command, or open the app; report bad input with exit code 2, one line per mistake."""
    from swarmtui.model.base import BadInput

    signal.signal(signal.SIGINT, _exit_on_interrupt)
    sys.stdout, sys.stderr = _output(sys.stdout), _output(sys.stderr)
    try:
        completing = "_SWARMTUI_COMPLETE" in os.environ  # by a shell
        if not completing and not {"--version", "--help", "-h"} & {*sys.argv[1:]}:
            _restore_settings()
        if sys.argv[1:] or completing:
            _check_arguments(sys.argv[1:])
            _run_command()
        else:
            from swarmtui.cli.app import open_app

            open_app(None, slow=False)
    except BadInput as error:
        _exit_with(2, *map(str, error.each))
    except UnicodeEncodeError as error:
        _exit_with(2, f"a name is not UTF-8 text: {error.object!r}")
    except Exception as error:  # noqa: BLE001 - our own fault must not look like one of the user or of a limit
        from swarmtui.processes.exits import FAULT, redact_given, write_crash_report

        problem = redact_given(f"{type(error).__name__}: {error}")
        _exit_with(FAULT, f"internal error, {problem}{write_crash_report(error)}")
    finally:
        _flush_output()


def _restore_settings() -> None:
    """Restore the settings of this machine that a killed tune has left changed, and say so."""
    from swarmtui.files import state_directory

    directory = state_directory() / "held"
    try:
        if not any(directory.iterdir()):
            return
    except OSError:
        return
    from swarmtui.client.held_settings import restore_left
    from swarmtui.text import escape, write_text

    for line in restore_left(directory):
        write_text(sys.stderr, f"swarmtui: a tune was killed: {escape(line, keep='')}")


def _flush_output() -> None:
    """Write what is left before the interpreter shuts down: then no signal would end a write that blocks."""
    while True:
        try:
            sys.stdout.flush()
        except SystemExit:  # Ctrl-C: the process ends if nobody reads
            continue
        break
    # Python removes its handlers during the shutdown: a late signal would then change the exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()  # the collections of the shutdown would take a sixth of the CPU time of a short command
    if _Output.problem:
        _exit_with(2, f"the output could not be written: {_Output.problem}")


def _check_arguments(arguments: list[str]) -> None:
    """Refuse what no option accepts: bytes that are not UTF-8, and numbers that Python refuses to convert."""
    import re

    from swarmtui.model.base import BadInput

    for number, argument in enumerate(arguments, 1):
        if not argument.isascii() and re.search("[\udc80-\udcff]", argument):
            # It is not repeated: it may be a key.
            raise BadInput(f"argument {number} is not UTF-8 text")
        if len(argument) > _MAX_DIGITS and re.search(rf"\d{{{_MAX_DIGITS}}}", argument):
            raise BadInput(f"the number {argument[:20]}… is too long")


def _run_command() -> NoReturn:
    import click

    from swarmtui.cli.options import COMPLETE_VARIABLE, commands
    from swarmtui.processes.exits import redact_given
    from swarmtui.text import write_text

    try:
        code = commands.main(prog_name="swarmtui", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        write_text(sys.stderr, redact_given(shown.getvalue()), end="")
        sys.exit(error.exit_code)
    except click.Abort:
        _exit_with(4, "stopped")
    sys.exit(code if isinstance(code, int) else 0)


def _exit_with(code: int, *messages: str) -> NoReturn:
    from swarmtui.text import escape, write_text

    for message in messages:
        write_text(sys.stderr, f"swarmtui: {escape(message, keep='')}")
    sys.exit(code)


class _Output(io.FileIO):
    """Drops what cannot be written. That the reader has closed the pipe is no problem: `| head` is not an error."""

    problem = ""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])  # somebody has made the pipe non-blocking
        except BrokenPipeError:
            return len(memoryview(data))
        except OSError as error:
            _Output.problem = error.strerror or str(error)
            return len(memoryview(data))
        return written


def _output(stream: TextIO) -> TextIO:
    """Open a standard stream again, so that a closed pipe or a character it cannot encode is not an error."""
    if stream is None:  # closed by the caller
        return io.TextIOWrapper(io.BufferedWriter(_Output(os.devnull, "w")))
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=raw.isatty() or stream is sys.stderr
    )


def _exit_on_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle Ctrl-C until a command installs its own handler; write unbuffered, it may interrupt a print."""
    from swarmtui.processes.exits import exit_if_stuck

    exit_if_stuck()
    os.write(2, b"swarmtui: stopped\n")
    sys.exit(4)
