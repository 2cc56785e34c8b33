"""Run the worker's event loop: epoll, a heap of timers, and handlers that are called directly."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter_ns

# Deferred callbacks run for at most this long before sockets are polled again.
_SLICE_NS = 500_000
_MS_NS = 1_000_000
READ = select.EPOLLIN
WRITE = select.EPOLLOUT

Handler = Callable[[int], None]
Callback = Callable[[], None]


class EventLoop:
    """Calls handlers for ready sockets, timers that are due, and deferred callbacks.

    `poll_delay_s` is a sleep before each poll. Arrivals are stamped by the kernel, so polling later loses no accuracy,
    and one wake-up then serves many streams. `after_reads` is called after the handlers of each poll.
    """

    def __init__(self) -> None:
        self.poll_delay_s = 0.0
        self.after_reads: Callback = lambda: None
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[int, int, Callback]] = []
        self._timer_count = 0
        self._after: deque[Callback] = deque()
        self._running = False

    def add_fd(self, fd: int, events: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def modify_fd(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def remove_fd(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_at(self, t_ns: int, callback: Callback) -> None:
        self._timer_count += 1
        heappush(self._timers, (t_ns, self._timer_count, callback))

    def call_soon(self, callback: Callback) -> None:
        """Call after the sockets that are ready now, in time slices, so that reading is not delayed."""
        self._after.append(callback)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        poll, handlers, timers, sleep = self._epoll.poll, self._handlers, self._timers, time.sleep
        while self._running:
            if self.poll_delay_s and not self._after:
                sleep(self.poll_delay_s)
            if self._after:
                wait = 0.0
            elif timers:
                wait = self._wait_for_timer(timers[0][0])
            else:
                wait = -1.0
            ready = poll(wait)
            for fd, events in ready:
                handler = handlers.get(fd)
                if handler is not None:
                    handler(events)
            if ready:
                self.after_reads()
            if timers and timers[0][0] <= perf_counter_ns():
                now = perf_counter_ns()
                while timers and timers[0][0] <= now:
                    heappop(timers)[2]()
            if self._after:
                after, until = self._after, perf_counter_ns() + _SLICE_NS
                while after:
                    after.popleft()()
                    if perf_counter_ns() > until:
                        break

    def _wait_for_timer(self, t_ns: int) -> float:
        """Return the timeout for epoll, which rounds up to milliseconds; the last fraction is waited for here."""
        left_ns = t_ns - perf_counter_ns()
        if left_ns >= _MS_NS:
            return left_ns // _MS_NS / 1e3
        if left_ns > 0:
            select.select([self._epoll], [], [], left_ns / 1e9)
        return 0.0
