"""Keep the traceback of an unexpected error in a file that only the user can read."""

from __future__ import annotations

import traceback
from pathlib import Path

# The exit code of an internal error of swarmtui, as in sysexits.h.
FAULT = 70


def write_crash_report(error: BaseException) -> str:
    """Return where the traceback is, to be appended to a message; empty if it cannot be written."""
    from platformdirs import user_state_dir

    from swarmtui.files import make_private_directory
    from swarmtui.sessions.files import write_file

    path = Path(user_state_dir("swarmtui")) / "crash.txt"
    try:
        make_private_directory(path.parent)
        write_file(path, "".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
    except OSError:
        return ""
    return f"; details: {path}"
