"""Sample GPUs, server metrics and the load of this host in threads during the load, and provide the newest sample.

Nothing waits for the threads: a metrics page that hangs leaves an old sample, and delays no frame.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from swarmtui.engines.registry import engine_named
from swarmtui.http_client import HttpClient
from swarmtui.model.endpoint import Endpoint, parse_address, show_url
from swarmtui.model.journal import ServerEntry, TelemetryEntry
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer, Gpu, HostLoad, ServerState, Telemetry
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.outage import ServerEvents
from swarmtui.session_process.preflight import PreflightFindings, http_client
from swarmtui.session_process.steering import run_unless
from swarmtui.state.session_state import SessionState
from swarmtui.telemetry.discovery import identify, server_process, with_gpus
from swarmtui.telemetry.host import HostReader, process_family
from swarmtui.telemetry.metrics import MetricsReader, metrics_url, parse_page

if TYPE_CHECKING:
    from swarmtui.hosts.pool import HostPool

_IDENTIFY_S = (2.0, 5.0)
_METRICS_S = 1.0
_HOST_S = 0.5
_LAST_SAMPLE_S = 2.5
# How long the last sample waits for a server to end the requests that were cancelled, and the time between two samples.
_IDLE_S, _IDLE_SAMPLE_S = 1.5, 0.05
# Between two points of the history, and two samples of the journal.
_POINT_S = 0.25
_JOURNAL_SAMPLE_NS = 900_000_000
_STALE_NS = 10_000_000_000


class Sampler:
    """Samples GPUs, servers and this host until `finish`; `pids` are the workers here, `clients` those who watch.

    It puts the server of each endpoint into `servers`, and the metrics from before the load into `baseline`, once each.
    """

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        request: RunRequest,
        *,
        simulated: bool,
        findings: PreflightFindings,
        hosts: HostPool | None = None,
        pids: Sequence[int] = (),
        clients: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._worker_pids, self._client_pids = pids, clients
        self._host: HostLoad | None = None
        self._hosts = hosts
        self._endpoints, self._request, self._simulated, self._findings = endpoints, request, simulated, findings
        self._gpus: tuple[Gpu, ...] = ()
        # The last sample that holds energy counters, and when it was taken.
        self._gpu_counters: tuple[int, tuple[Gpu, ...]] = (0, ())
        self._gpu_problem = "" if request.gpus else "switched off (--no-gpu)"
        self._metrics: tuple[int | None, tuple[ServerState, ...]] = (None, ())
        self._server_problem = ""
        self.servers: SimpleQueue[tuple[int, DiscoveredServer]] = SimpleQueue()
        self._identified = threading.Event()
        self.baseline: SimpleQueue[Telemetry] = SimpleQueue()
        self._ending = threading.Event()
        # Wakes the thread that reads the servers.
        self._wake = threading.Event()
        self._load_ended = False
        self._last_sample_due: set[str] = set()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        if self._request.gpus:
            self._start_thread(self._sample_gpus)
            if self._hosts is not None:
                # What is measured on a simulator says nothing about the GPUs of its host.
                hosts = () if self._simulated else [parse_address(endpoint.url).host for endpoint in self._endpoints]
                self._hosts.sample_gpus(tuple(hosts))
        self._start_thread(self._sample_servers)
        self._start_thread(self._sample_host)

    def _start_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)

    def finish(self, *, load_ended: bool) -> None:
        """Take one last sample, so that counters cover the whole load; a read that hangs is abandoned.

        Without `load_ended` requests are still running, so that waiting for the server to count them makes no sense.
        """
        self._load_ended = load_ended
        self._ending.set()
        self._wake.set()
        deadline = time.monotonic() + _LAST_SAMPLE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _has_ended(self, pause: float, wake: threading.Event) -> bool:
        """Wait for the next sample; after `finish` each thread takes one more, without waiting."""
        name = threading.current_thread().name
        if name in self._last_sample_due:
            return True
        wake.wait(pause)
        if self._ending.is_set():
            self._last_sample_due.add(name)
        return False

    def has_identified(self) -> bool:
        """Whether the servers were asked what they are, and what they said has been taken."""
        return self._identified.is_set() and self.servers.empty()

    def latest(self) -> Telemetry:
        return self._telemetry(time.perf_counter_ns(), self._gpus)

    def read_now(self) -> Telemetry:
        """Return the newest values, and read the servers again."""
        self._wake.set()
        return self.latest()

    def sample(self) -> Telemetry:
        """Return the last sample with energy counters and its time, for the journal.

        GPUs that no longer answer are left out, so that samples of servers continue.
        """
        (t_ns, gpus), metrics_ns = self._gpu_counters, self._metrics[0]
        if t_ns and metrics_ns and metrics_ns - t_ns > _STALE_NS:
            return self._telemetry(metrics_ns, ())
        return self._telemetry(t_ns or time.perf_counter_ns(), gpus)

    def _telemetry(self, t_ns: int, gpus: tuple[Gpu, ...]) -> Telemetry:
        read_ns, servers = self._metrics
        if self._hosts is not None:
            name = socket.gethostname()
            own = (gpu if gpu.simulated else msgspec.structs.replace(gpu, host=name) for gpu in gpus)
            # Hosts that share a machine, perhaps with us, report the same GPUs.
            seen: dict[str, Gpu] = {}
            for gpu in (*own, *self._hosts.gpus()):
                seen.setdefault(gpu.uuid, gpu)
            gpus = tuple(seen.values())
        return Telemetry(
            t_ns=t_ns,
            gpus=gpus,
            gpu_problem=self._gpu_problem,
            servers=servers,
            server_problem=self._server_problem,
            servers_t_ns=read_ns,
            host=self._host,
        )

    def _sample_host(self) -> None:
        from swarmtui.telemetry.gpu.readers import is_local

        addresses = [parse_address(endpoint.url) for endpoint in self._endpoints]
        found = [self._findings.listeners.get(address.root) for address in addresses if is_local(address.host)]
        servers = [pid for listener in found if listener is not None and (pid := server_process(listener)) is not None]
        # Without the process of a server here, it is not known whether that had to wait, and who else did not.
        reader = HostReader()
        if len(servers) == len(found):
            reader = HostReader([*self._worker_pids, *process_family(servers)], servers, self._client_pids)
        pause = 0.0
        while not self._has_ended(pause, self._ending):
            self._host, pause = reader.read(all_processes=self._ending.is_set()), _HOST_S

    def _sample_gpus(self) -> None:
        from swarmtui.telemetry.gpu.readers import EXPORTER_S, SAMPLE_S, ReadCadence, open_gpus

        urls = self._gpu_urls()
        if urls is None:
            self._gpu_problem = "the endpoint is on another host; name its DCGM or AMD exporter with --gpu-metrics-url"
            return
        # Exporters get no secrets, but their text may repeat them.
        client = HttpClient((), self._request.secrets)
        reader, cadence, pause = open_gpus(urls, client), ReadCadence(EXPORTER_S if urls else SAMPLE_S), 0.0
        while not self._has_ended(pause, self._ending):
            full = self._ending.is_set() or cadence.next_is_full(time.monotonic())
            started_ns, cpu_s = time.perf_counter_ns(), time.thread_time()
            self._gpus, self._gpu_problem = reader.read(full=full), reader.problem
            taken_ns = time.perf_counter_ns() - started_ns
            if full or any(gpu.energy_j is not None for gpu in self._gpus):
                self._gpu_counters = (started_ns + taken_ns // 2, self._gpus)
            pause = cadence.pause(time.thread_time() - cpu_s, taken_ns / 1e9)
        reader.close()

    def _gpu_urls(self) -> tuple[str, ...] | None:
        """Return the exporters to read, empty for the GPUs of this host, None if the GPUs cannot be reached."""
        from swarmtui.telemetry.gpu.readers import is_local

        if self._request.gpu_metrics_urls:
            return self._request.gpu_metrics_urls
        if self._simulated:
            return tuple(f"{parse_address(endpoint.url).root}/gpu/metrics" for endpoint in self._endpoints)
        return () if any(is_local(parse_address(endpoint.url).host) for endpoint in self._endpoints) else None

    def _parse_baseline(self) -> None:
        """Parse the metrics that preflight read, which had no time for it."""
        for url, t_ns, text in self._findings.metrics_pages:
            state = parse_page(url, text, self._endpoints[0].engine)
            if state is not None:
                self.baseline.put(Telemetry(t_ns=t_ns, servers=(msgspec.structs.replace(state, url=show_url(url)),)))

    def _identify(self, client: HttpClient) -> None:
        from swarmtui.telemetry.model_files.find import with_model

        for number, endpoint in enumerate(self._endpoints):
            root = parse_address(endpoint.url).root
            listener = self._findings.listeners.get(root)
            # A server under load may answer late; without its flags, sessions differ for no visible reason.
            found = next(
                (x for s in _IDENTIFY_S if (x := identify(root, listener, s, client=client)) is not None), None
            )
            if found is not None:
                (found,) = with_gpus([found], self._gpu_counters[1])
                if self._request.model_path or not self._simulated:
                    found = with_model(found, self._request.model_path)
                self.servers.put((number, found))

    def _sample_servers(self) -> None:
        request = self._request
        own = [metrics_url(parse_address(endpoint.url).root, endpoint.engine) for endpoint in self._endpoints]
        urls = request.metrics_urls or tuple(url for url in own if url)
        client = http_client(request, [endpoint.url for endpoint in self._endpoints])
        reader = MetricsReader(urls, client, engine=self._endpoints[0].engine)
        self._parse_baseline()
        self._identify(client)
        self._identified.set()
        pause = 0.0
        while not self._has_ended(pause, self._wake):
            self._wake.clear()
            self._read_metrics(reader)
            pause = _METRICS_S
        deadline = time.monotonic() + (_IDLE_S if self._load_ended else 0.0)
        while any(map(_counts_later, self._metrics[1])) and time.monotonic() < deadline:
            time.sleep(_IDLE_SAMPLE_S)
            last = self._metrics
            self._read_metrics(reader)
            if len(self._metrics[1]) < len(last[1]):
                # A server did not answer: what it reported before is better than nothing.
                self._metrics = last
                break
        reader.close()

    def _read_metrics(self, reader: MetricsReader) -> None:
        started_ns = time.perf_counter_ns()
        servers, self._server_problem = reader.read()
        self._metrics = (started_ns, servers)


class SampleFeed:
    """Brings readings to the state of the session and its journal; `on_point` follows each point of the history."""

    def __init__(
        self,
        sampler: Sampler,
        state: SessionState,
        journal: JournalQueue,
        events: ServerEvents,
        on_point: Callable[[], None],
    ) -> None:
        self._sampler, self._state, self._journal, self._events = sampler, state, journal, events
        self._on_point = on_point

    async def run(self) -> None:
        """Add a point to the history four times per second, and a sample to the journal once per second."""
        sampler, written_ns = self._sampler, 0
        while True:
            self._add_latest()
            self._state.tick(time.perf_counter_ns())
            self._on_point()
            while not sampler.baseline.empty():
                baseline = sampler.baseline.get()
                self._state.quality.add_baseline(baseline)
                self._journal.write(TelemetryEntry(telemetry=baseline))
            self._write_servers()
            sample = sampler.sample()
            if sample.t_ns - written_ns >= _JOURNAL_SAMPLE_NS and (sample.gpus or sample.servers or sample.host):
                written_ns = sample.t_ns
                self._journal.write(TelemetryEntry(telemetry=sample))
            await asyncio.sleep(_POINT_S)

    async def finish(self, stop_now: asyncio.Event, *, load_ended: bool) -> None:
        """Take the last sample after the load, unless the user does not want to wait for it."""
        await run_unless(stop_now, partial(self._sampler.finish, load_ended=load_ended))
        self._add_latest()
        self._events.finish()
        self._write_servers()
        self._journal.write(TelemetryEntry(telemetry=self._sampler.sample()))

    def _add_latest(self) -> None:
        latest = self._sampler.latest()
        self._state.add_sample(latest)
        self._events.add_sample(latest)

    def _write_servers(self) -> None:
        while not self._sampler.servers.empty():
            number, server = self._sampler.servers.get()
            self._journal.write(ServerEntry(endpoint=number, server=server))


def _counts_later(server: ServerState) -> bool:
    """Whether requests are running whose tokens the server counts when they end."""
    return bool(server.running or server.waiting) and engine_named(server.engine).counts_tokens_at_end
