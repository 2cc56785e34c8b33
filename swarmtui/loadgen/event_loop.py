"""The worker's event loop: epoll, a heap of timers, and nothing between a readable socket and its handler."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from swarmtui.loadgen.clock import monotonic_ns

# So long may the work that can wait take before sockets are read again.
_SLICE_NS = 500_000

_MS_NS = 1_000_000

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

Handler = Callable[[int], None]
Callback = Callable[[], None]


class Loop:
    """`nap_s`: how long to sleep before sockets are looked at again.

    Where the kernel stamps arrivals, nothing is lost by looking later, and one wake-up then serves many streams.
    `after_reads` is called when all sockets that were readable at one look have been read.
    """

    def __init__(self) -> None:
        self.nap_s = 0.0
        self.after_reads: Callback = _nothing
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[int, int, Callback]] = []
        self._timer_count = 0
        self._after: deque[Callback] = deque()
        self._running = False

    def watch(self, fd: int, events: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, t_ns: int, callback: Callback) -> None:
        self._timer_count += 1
        heappush(self._timers, (t_ns, self._timer_count, callback))

    def soon(self, callback: Callback) -> None:
        """After the sockets that are readable now, in slices: work that can wait does not keep tokens waiting."""
        self._after.append(callback)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        poll, handlers, timers, sleep = self._epoll.poll, self._handlers, self._timers, time.sleep
        while self._running:
            if self.nap_s and not self._after:
                sleep(self.nap_s)
            if self._after:
                wait = 0.0
            elif timers:
                wait = self._until_timer(timers[0][0])
            else:
                wait = -1.0
            ready = poll(wait)
            for fd, events in ready:
                handler = handlers.get(fd)
                if handler is not None:
                    handler(events)
            if ready:
                self.after_reads()
            if timers and timers[0][0] <= monotonic_ns():
                now = monotonic_ns()
                while timers and timers[0][0] <= now:
                    heappop(timers)[2]()
            if self._after:
                after, until = self._after, monotonic_ns() + _SLICE_NS
                while after:
                    after.popleft()()
                    if monotonic_ns() > until:
                        break

    def _until_timer(self, t_ns: int) -> float:
        """epoll waits in whole milliseconds, rounded up: the last part of one is waited for here."""
        left_ns = t_ns - monotonic_ns()
        if left_ns >= _MS_NS:
            return left_ns // _MS_NS / 1e3
        if left_ns > 0:
            select.select([self._epoll], [], [], left_ns / 1e9)
        return 0.0


def _nothing() -> None:
    pass
