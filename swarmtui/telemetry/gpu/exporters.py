"""Read GPUs of another host, or simulated ones, from exporters for Prometheus."""

from __future__ import annotations

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu import amd_exporter, dcgm
from swarmtui.telemetry.gpu.cadence import Depth
from swarmtui.telemetry.prometheus import Fetcher


class ExporterReader:
    """Read the GPUs of several exporters. Never raises: `problem` explains why GPUs are missing."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.problem = ""

    def read(self, depth: Depth = Depth.FULL) -> tuple[Gpu, ...]:
        """Read everything at any depth: it is one page."""
        gpus: list[Gpu] = []
        problems: list[str] = []
        for url, body, problem in self._fetcher.fetch():
            found = (dcgm.parse_gpus(body) or amd_exporter.parse_gpus(body)) if not problem else None
            if found is None:
                problems.append(f"{url}: {problem or 'not the page of a DCGM exporter or AMD device-metrics-exporter'}")
            gpus += found or ()
        self.problem = "; ".join(problems)
        return tuple(gpus)

    def close(self) -> None:
        self._fetcher.close()
