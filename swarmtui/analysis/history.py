"""The values of a frame that the history of a run keeps."""

from __future__ import annotations

from swarmtui.analysis.levels.stats import sum_known
from swarmtui.model.client_protocol import Frame
from swarmtui.model.telemetry import HistoryPoint


def server_waiting(frame: Frame) -> float | None:
    """Return the queue length that the servers report."""
    states = frame.telemetry.servers if frame.telemetry else ()
    return sum_known(state.waiting for state in states)


def history_point(frame: Frame) -> HistoryPoint:
    return HistoryPoint(
        t_ns=frame.t_ns,
        c=frame.c,
        in_flight=frame.in_flight,
        waiting=frame.waiting,
        out_tps=frame.out_tps,
        ttft_s=frame.ttft_s,
        errors=frame.errors,
        server_waiting=server_waiting(frame),
    )
