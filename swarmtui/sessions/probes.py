"""Collect the probes among the saved sessions by target: endpoint, model and workload."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.analysis.compare.differences import server_changes
from swarmtui.analysis.compare.probe_history import ProbeResult
from swarmtui.analysis.levels.stats import mean
from swarmtui.files import MAX_DATA, read_file
from swarmtui.model.base import DECODE_ERRORS, Stored
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.sessions.index import SessionRow, list_sessions


class _ProbeRequest(Stored, frozen=True, kw_only=True):
    phase: str = ""
    engine_decode_tps: float | None = None


class _ProbeDetail(Stored, frozen=True, kw_only=True):
    levels: tuple[Level, ...] = ()
    requests: tuple[_ProbeRequest, ...] = ()
    servers: tuple[DiscoveredServer, ...] = ()


_decoder = msgspec.json.Decoder(_ProbeDetail)


def probes_by_target(root: Path) -> dict[str, list[ProbeResult]]:
    """Group the probes, oldest first; the target probed last comes first. Unreadable sessions are skipped."""
    found: dict[str, list[ProbeResult]] = {}
    servers: dict[str, DiscoveredServer] = {}
    for row in reversed(list_sessions(root)):
        if row.series is None or row.series.kind != "probe" or row.problem is not None:
            continue
        try:
            detail = _decoder.decode(read_file(Path(row.directory) / "detail.json", MAX_DATA))
        except (OSError, *DECODE_ERRORS):
            continue
        probe = _probe(row, detail)
        if probe is None:
            continue
        target = f"{row.series.name} {row.model} {row.workload}"
        before, now = servers.get(target), detail.servers[-1] if detail.servers else None
        changed = before is not None and now is not None and bool(server_changes(before, now))
        servers |= {target: now} if now is not None else {}
        found.setdefault(target, []).append(msgspec.structs.replace(probe, server_changed=changed))
    return dict(sorted(found.items(), key=lambda item: item[1][-1].id, reverse=True))


def _probe(row: SessionRow, detail: _ProbeDetail) -> ProbeResult | None:
    level = next((level for level in detail.levels if level.c == 1), None)
    if level is None:
        return None
    streamed = tuple(run.per_stream_tps for run in level.by_run if run.per_stream_tps is not None)
    # A response that arrives in one piece, as behind a buffering proxy, has no decode rate.
    whole = tuple(run.out_tps_wall for run in level.by_run if run.out_tps_wall is not None)
    engine = [r.engine_decode_tps for r in detail.requests if r.phase == "level" and r.engine_decode_tps is not None]
    return ProbeResult(
        id=row.id,
        created=row.created,
        runs=streamed or whole,
        wall=not streamed,
        engine_tps=mean(engine),
        ttft_s=level.ttft_s.median,
    )
