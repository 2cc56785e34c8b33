"""Bring the readings of GPUs, servers and this host from the sampler to the state of the session and to its journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from swarmtui.model.journal import ServerEntry, TelemetryEntry
from swarmtui.session_process.finish import run_interruptible
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.outage import ServerEvents
from swarmtui.session_process.sampler import Sampler
from swarmtui.state.session_state import SessionState

_POINT_S = 0.25
_JOURNAL_SAMPLE_NS = 900_000_000


class SampleFeed:
    """`on_point` is called with each point of the history."""

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
        await run_interruptible(stop_now, partial(self._sampler.finish, load_ended=load_ended))
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
