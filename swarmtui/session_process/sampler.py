"""Looks at GPUs and server metrics beside the load: two threads, and the newest of what they saw.

Nothing here is waited for: a metrics page that hangs makes an old reading, not a late frame.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.endpoint import Endpoint, Secrets, parse_address
from swarmtui.model.telemetry import Discovered, Gpu, ServerState, Telemetry

if TYPE_CHECKING:
    from swarmtui.telemetry.discovery import Listener

# A metrics page: where, when, and what it said.
Glance = tuple[str, int, str]

_METRICS_S = 1.0
_LAST_LOOK_S = 2.5
_SILENT_NS = 10_000_000_000


class Seen:
    """What was noticed before the load, when looking costs nobody anything."""

    def __init__(self) -> None:
        self.glances: list[Glance] = []
        self.listeners: dict[str, Listener] = {}


class Watch:
    """`found` gets what is known of each endpoint's server, `before` what metrics said before the load; both once."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        secrets: Secrets,
        *,
        simulated: bool,
        gpus: bool,
        metrics_urls: tuple[str, ...],
        gpu_metrics_urls: tuple[str, ...],
        seen: Seen,
    ) -> None:
        self._seen = seen
        self._endpoints, self._secrets, self._simulated = endpoints, secrets, simulated
        self._look_at_gpus = gpus
        self._metrics_urls, self._gpu_metrics_urls = metrics_urls, gpu_metrics_urls
        self._gpus: tuple[Gpu, ...] = ()
        self._counted: tuple[int, tuple[Gpu, ...]] = (0, ())
        self._gpu_problem = "" if gpus else "switched off (--no-gpu)"
        self._served: tuple[int | None, tuple[ServerState, ...]] = (None, ())
        self._server_problem = ""
        self.found: SimpleQueue[tuple[int, Discovered]] = SimpleQueue()
        self.before: SimpleQueue[Telemetry] = SimpleQueue()
        self._ending = threading.Event()
        self._last_looks: set[str] = set()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        if self._look_at_gpus:
            self._begin(self._follow_gpus)
        self._begin(self._follow_servers)

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """One last look, so that counters hold all of the load; a read that hangs is left behind with the process."""
        self._ending.set()
        until = time.monotonic() + _LAST_LOOK_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _ended(self, pause: float) -> bool:
        """Waits for the next look. The end cuts the wait short, and lets one more look through."""
        name = threading.current_thread().name
        if name in self._last_looks:
            return True
        if self._ending.wait(pause):
            self._last_looks.add(name)
        return False

    def latest(self) -> Telemetry:
        """For the screen: the newest of everything."""
        return self._telemetry(time.perf_counter_ns(), self._gpus)

    def sample(self) -> Telemetry:
        """For the journal: the last reading with energy counters, at the time when they were read.

        GPUs that no longer answer are left out, so that servers are still heard.
        """
        (t_ns, gpus), served_ns = self._counted, self._served[0]
        if t_ns and served_ns and served_ns - t_ns > _SILENT_NS:
            return self._telemetry(served_ns, ())
        return self._telemetry(t_ns or time.perf_counter_ns(), gpus)

    def _telemetry(self, t_ns: int, gpus: tuple[Gpu, ...]) -> Telemetry:
        asked_ns, servers = self._served
        return Telemetry(
            t_ns=t_ns,
            gpus=gpus,
            gpu_problem=self._gpu_problem,
            servers=servers,
            server_problem=self._server_problem,
            servers_t_ns=asked_ns,
        )

    def _follow_gpus(self) -> None:
        from swarmtui.telemetry.gpu.cadence import LOOK_S, PAGE_S, Depth, Pace
        from swarmtui.telemetry.gpu.source import open_gpus

        urls = self._gpu_urls()
        if urls is None:
            self._gpu_problem = "the endpoint is on another host; name its DCGM exporter with --gpu-metrics-url"
            return
        source, pace, pause = open_gpus(urls), Pace(PAGE_S if urls else LOOK_S), 0.0
        while not self._ended(pause):
            depth = Depth.WHOLE if self._ending.is_set() else pace.depth(time.monotonic())
            begun_ns, cpu_s = time.perf_counter_ns(), time.thread_time()
            self._gpus, self._gpu_problem = source.read(depth), source.problem
            taken_ns = time.perf_counter_ns() - begun_ns
            if depth > Depth.MOVING or any(gpu.energy_j is not None for gpu in self._gpus):
                self._counted = (begun_ns + taken_ns // 2, self._gpus)
            pause = pace.pause(time.thread_time() - cpu_s, taken_ns / 1e9)
        source.close()

    def _gpu_urls(self) -> tuple[str, ...] | None:
        """Exporters to read; empty for this host's own GPUs; None when there is nothing to look at from here."""
        if self._gpu_metrics_urls:
            return self._gpu_metrics_urls
        if self._simulated:
            return tuple(f"{parse_address(endpoint.url).root}/gpu/metrics" for endpoint in self._endpoints)
        return () if any(_is_local(parse_address(endpoint.url).host) for endpoint in self._endpoints) else None

    def _first_look(self) -> None:
        """What preflight saw of the metrics, read now that there is time for it."""
        from swarmtui.telemetry.metrics import parse

        for url, t_ns, text in self._seen.glances:
            state = parse(text, self._endpoints[0].engine)
            if state is not None:
                self.before.put(Telemetry(t_ns=t_ns, servers=(msgspec.structs.replace(state, url=url),)))

    def _identify(self) -> None:
        from swarmtui.telemetry.discovery import identify, with_gpus

        for number, endpoint in enumerate(self._endpoints):
            root = parse_address(endpoint.url).root
            found = identify(root, self._seen.listeners.get(root))
            if found is not None:
                (found,) = with_gpus([found], self._counted[1])
                self.found.put((number, found))

    def _follow_servers(self) -> None:
        from swarmtui.telemetry.metrics import MetricsReader, metrics_url

        first, secrets = self._endpoints[0], self._secrets
        urls = self._metrics_urls or tuple(
            metrics_url(parse_address(endpoint.url).root, endpoint.engine) for endpoint in self._endpoints
        )
        headers = {"Authorization": f"Bearer {secrets.api_key}"} if secrets.api_key else {}
        # What authorises us there is told nobody else.
        ours = {parse_address(endpoint.url).host for endpoint in self._endpoints}
        known = all(parse_address(url).host in ours for url in urls)
        reader = MetricsReader(
            urls,
            headers | secrets.headers if known else None,
            engine=first.engine,
            ca_file=first.ca_file,
            insecure=first.insecure,
        )
        self._first_look()
        self._identify()
        looks = 0
        while not self._ended(_METRICS_S if looks else 0.0):
            asked_ns = time.perf_counter_ns()
            servers, self._server_problem = reader.read()
            self._served = (asked_ns, servers)
            looks += 1
        reader.close()


def _is_local(host: str) -> bool:
    """Whether an address is one of this host's own: then it can be bound here."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.bind(found[0][4])
    except OSError:
        return False
    return True
