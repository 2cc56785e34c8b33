"""Compute levels from entries, as a process those of a running session: `python -m swarmtui.sessions.compute_levels FD`

FD is the open journal of the parent, since its directory may have been removed. Standard input holds the stages that
have ended, the search for the capacity and the requests that could not be written to disk; the levels go to standard
output as JSON.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from swarmtui.analysis.levels.figures import level_figures, level_readings
from swarmtui.model.journal import CapacitySearch, Entry, Head, ServerEntry, StageEnd, StageStart, TelemetryEntry
from swarmtui.model.load import SerialRates
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.sessions.journal import decode_line, entries_of, last_of, read_entries, unique_records


def levels_of(
    records: Sequence[Record], stages: Sequence[Entry], rates: SerialRates | None, others: Sequence[Entry]
) -> tuple[Level, ...]:
    """Compute the levels of records, by the stages and the search among entries, and by what `others` say."""
    return level_figures(
        records,
        entries_of(StageStart, stages),
        entries_of(StageEnd, stages),
        rates,
        [entry.server for entry in entries_of(ServerEntry, others)],
        level_readings(entry.telemetry for entry in entries_of(TelemetryEntry, others)),
        last_of(CapacitySearch, stages),
    )


def main() -> None:
    # Load is being generated at the same time, and the parent may exit first.
    os.nice(10)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    journal, _ = read_entries(Path(f"/proc/self/fd/{int(sys.argv[1])}"))
    unwritten = [entry for line in sys.stdin.buffer if (entry := decode_line(line)) is not None]
    head = next(iter(entries_of(Head, journal)), None)
    # The journal may already hold requests of a stage that runs.
    ended = {stage.number for stage in entries_of(StageStart, unwritten)}
    records = [record for record in unique_records([*journal, *unwritten]) if record.stage in ended]
    rates = head.session.plan.load.serial_rates if head else None
    sys.stdout.buffer.write(msgspec.json.encode(levels_of(records, unwritten, rates, journal)))


if __name__ == "__main__":
    main()
