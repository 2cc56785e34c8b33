"""The command line: one function for each sub-command."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from swarmtui.cli import choosing, contests, keeping, running  # they add their commands to the group
from swarmtui.cli.root import commands

__all__ = ["choosing", "contests", "keeping", "main", "running"]


def main() -> None:
    """Bad input of any kind is one line and exit code 2."""
    from swarmtui.model.schema import BadInput

    signal.signal(signal.SIGINT, _leave)
    try:
        commands()
    except BadInput as error:
        _refuse(str(error))


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C where nothing runs yet that has a better answer to it. It may come in the middle of a print."""
    os.write(2, b"swarmtui: stopped\n")
    sys.exit(4)


def _refuse(message: str) -> NoReturn:
    click.echo(f"swarmtui: {message}", err=True)
    sys.exit(2)
