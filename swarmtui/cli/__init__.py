"""The command line: one function for each sub-command."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Bad input of any kind is one line and exit code 2."""
    from swarmtui.model.schema import BadInput

    signal.signal(signal.SIGINT, _leave)
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


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C where nothing runs yet that has a better answer to it. It may come in the middle of a print."""
    os.write(2, b"swarmtui: stopped\n")
    sys.exit(4)
