"""Collect the probes among the saved sessions by target: endpoint, model and workload."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.analysis.compare.probe_history import ProbeResult
from swarmtui.analysis.levels.stats import mean
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level
from swarmtui.sessions.index import SessionRow, list_sessions


class _ProbeRequest(Stored, frozen=True, kw_only=True):
    phase: str = ""
    engine_decode_tps: float | None = None


class _ProbeDetail(Stored, frozen=True, kw_only=True):
    levels: tuple[Level, ...] = ()
    requests: tuple[_ProbeRequest, ...] = ()


_decoder = msgspec.json.Decoder(_ProbeDetail)


def probes_by_target(root: Path) -> dict[str, list[ProbeResult]]:
    """Group the probes. Sessions that cannot be read or have not ended are skipped."""
    found: dict[str, list[ProbeResult]] = {}
    for row in list_sessions(root):
        if row.series is not None and row.series.kind == "probe" and row.problem is None:
            probe = _read_probe(row)
            if probe is not None:
                found.setdefault(f"{row.series.name} {row.model} {row.workload}", []).append(probe)
    return found


def _read_probe(row: SessionRow) -> ProbeResult | None:
    try:
        detail = _decoder.decode((Path(row.directory) / "detail.json").read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
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
        ttft_s=level.ttft_s.mean,
    )
