"""The levels of a journal that is still written, on standard output: `python -m swarmtui.sessions.compute_levels FD`.

The journal is an open file of whoever asks, since its directory may be gone. Standard input has its stretches, and the
requests that the disk did not take.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.serial import serial_rates
from swarmtui.model.session import Head, RequestEntry, StageEnd, StageStart
from swarmtui.sessions.journal import entries, once


def main() -> None:
    # The load goes on beside us, and whoever asked may end before we do.
    os.nice(10)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    found, _ = entries(Path(f"/proc/self/fd/{int(sys.argv[1])}"))
    told, _ = entries(Path("/proc/self/fd/0"))
    head = next((entry for entry in found if isinstance(entry, Head)), None)
    levels = level_figures(
        once([entry.record for entry in (*found, *told) if isinstance(entry, RequestEntry)]),
        [entry for entry in told if isinstance(entry, StageStart)],
        [entry for entry in told if isinstance(entry, StageEnd)],
        serial_rates(head.session.plan) if head else None,
    )
    sys.stdout.buffer.write(msgspec.json.encode(levels))


if __name__ == "__main__":
    main()
