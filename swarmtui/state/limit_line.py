"""What the hardware allows at the levels that a screen shows."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.analysis.speed_of_light.session import session_limits
from swarmtui.model.findings import Slots
from swarmtui.model.session import Level, Session
from swarmtui.model.telemetry import DiscoveredServer, Telemetry

LimitPoint = tuple[int, float]


class LimitLine:
    """Computes the line again when there is another level or server; empty while the model or the GPU is not known."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._points: tuple[LimitPoint, ...] = ()

    def points(
        self,
        session: Session | None,
        levels: Sequence[Level],
        servers: Sequence[DiscoveredServer],
        slots: Slots | None,
        sample: Telemetry | None,
    ) -> tuple[LimitPoint, ...]:
        """Return C and the tok/s that are possible at each level, of a MoE those to expect."""
        if not any(server.shape for server in servers) and (session is None or session.model_facts is None):
            return ()
        gpus = used_gpus(sample, servers) if sample is not None else ()
        of = (levels, servers, slots, tuple(gpu.uuid for gpu in gpus))
        if not self._of or any(old is not new and old != new for old, new in zip(self._of, of, strict=True)):
            facts = session.model_facts if session is not None else None
            found = session_limits(levels, servers, gpus, slots, {}, facts).levels
            self._of = of
            self._points = tuple((level.c, level.expected_tps) for level in found if level.expected_tps is not None)
        return self._points
