"""Probes among the saved sessions, by what they measured: endpoint, model and workload."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.analysis.compare.probe_history import ProbeResult
from swarmtui.analysis.levels.stats import mean
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level
from swarmtui.sessions.index import Listed, list_sessions

# Its value is the endpoint as people wrote it: the embedded simulator has another address each time.
TAG = "probe"


class _Request(Stored, frozen=True, kw_only=True):
    phase: str = ""
    engine_decode_tps: float | None = None


class _Detail(Stored, frozen=True, kw_only=True):
    levels: tuple[Level, ...] = ()
    requests: tuple[_Request, ...] = ()


_decoder = msgspec.json.Decoder(_Detail)


def probes_by_target(root: Path) -> dict[str, list[ProbeResult]]:
    """What cannot be read, or has not ended, is passed over: a history never fails for one of its sessions."""
    found: dict[str, list[ProbeResult]] = {}
    for row in list_sessions(root):
        if TAG in row.tags and row.problem is None:
            probe = _probe(row)
            if probe is not None:
                found.setdefault(f"{row.tags[TAG]} {row.model} {row.workload}", []).append(probe)
    return found


def _probe(row: Listed) -> ProbeResult | None:
    try:
        detail = _decoder.decode((Path(row.directory) / "detail.json").read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    level = next((level for level in detail.levels if level.c == 1), None)
    if level is None:
        return None
    engine = [r.engine_decode_tps for r in detail.requests if r.phase == "level" and r.engine_decode_tps is not None]
    return ProbeResult(
        id=row.id,
        created=row.created,
        runs=tuple(run.per_stream_tps for run in level.by_run if run.per_stream_tps is not None),
        engine_tps=mean(engine),
        ttft_s=level.ttft_s.mean,
    )
