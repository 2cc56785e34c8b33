"""The command line of swarmtui: one module per group of commands."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run a command, or open the app; report bad input in one line with exit code 2."""
    from swarmtui.model.schema import BadInput

    signal.signal(signal.SIGINT, _exit_on_interrupt)
    try:
        if sys.argv[1:]:
            from swarmtui.cli.options import commands

            commands()
        else:
            from swarmtui.cli.app import open_app

            open_app(None, slow=False)
    except BadInput as error:
        sys.stderr.write(f"swarmtui: {error}\n")
        sys.exit(2)


def _exit_on_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Handle Ctrl-C until a command installs its own handler; write unbuffered, it may interrupt a print."""
    os.write(2, b"swarmtui: stopped\n")
    sys.exit(4)
