"""Compute the levels of a running session in a process of its own: `python -m swarmtui.sessions.compute_levels FD`.

FD is the open journal of the parent, since its directory may have been removed. Standard input holds the stages that
have ended, the search for the capacity and the requests that could not be written to disk; the levels go to standard
output as JSON.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from swarmtui.analysis.levels.figures import level_figures, level_readings
from swarmtui.model.journal import CapacitySearch, Head, RequestEntry, ServerEntry, StageEnd, StageStart, TelemetryEntry
from swarmtui.sessions.journal import decode_line, read_entries, unique_records


def main() -> None:
    # Load is being generated at the same time, and the parent may exit first.
    os.nice(10)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    journal, _ = read_entries(Path(f"/proc/self/fd/{int(sys.argv[1])}"))
    unwritten = [decode_line(line) for line in sys.stdin.buffer]
    head = next((entry for entry in journal if isinstance(entry, Head)), None)
    stages = [entry for entry in unwritten if isinstance(entry, StageStart)]
    # The journal may already hold requests of a stage that runs.
    ended = {stage.number for stage in stages}
    records = [entry.record for entry in (*journal, *unwritten) if isinstance(entry, RequestEntry)]
    levels = level_figures(
        unique_records([record for record in records if record.stage in ended]),
        stages,
        [entry for entry in unwritten if isinstance(entry, StageEnd)],
        head.session.plan.load.serial_rates if head else None,
        [entry.server for entry in journal if isinstance(entry, ServerEntry)],
        level_readings(entry.telemetry for entry in journal if isinstance(entry, TelemetryEntry)),
        next((entry for entry in unwritten if isinstance(entry, CapacitySearch)), None),
    )
    sys.stdout.buffer.write(msgspec.json.encode(levels))


if __name__ == "__main__":
    main()
