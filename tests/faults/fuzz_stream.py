"""Fuzz an HTTP exchange with arbitrary bytes: it must end, with little memory.

python -m tests.faults.fuzz_stream -max_total_time=600      (needs atheris, which is built with clang)
"""

from __future__ import annotations

import importlib
import sys

from swarmtui.loadgen import sse
from swarmtui.loadgen.clock import KernelClock
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.event_loop import EventLoop
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.model.endpoint import PATHS, Dialect
from swarmtui.model.worker_protocol import Target

_loop, _clock = EventLoop(), KernelClock()
_pools: dict[Dialect, EndpointPool] = {
    dialect: EndpointPool(_loop, _clock, 0, Target(url="http://127.0.0.1:9", model="m", dialect=dialect))
    for dialect in PATHS
}


def run_exchange(dialect: Dialect, pieces: list[bytes]) -> HttpExchange:
    """Return an exchange that received these bytes, in these reads, and then the end of the connection."""
    ended: list[bool] = []
    pool = _pools[dialect]
    exchange = HttpExchange(pool, lambda: ended.append(True))
    exchange._attach(pool.new_connection())
    exchange.t_sent = exchange.t = 1
    for piece in pieces:
        if exchange.t_done is None:
            exchange.t += 1_000
            exchange.data_received(piece)
    exchange.connection_lost("closed_early", "the server closed the connection")
    while _loop._after:
        _loop._after.popleft()()
    assert ended == [True]
    assert exchange.t_done is not None
    assert exchange.response.error is None or exchange.response.error.replace("_", "").isalnum()
    assert len(exchange._body) <= 64 << 10
    assert exchange.response.chars <= sum(map(len, pieces)) <= sse.MAX_EVENT or exchange.response.error
    return exchange


def one(data: bytes) -> None:
    """Run one input: its first byte selects the dialect and the size of the reads."""
    if data:
        size = 1 + data[0] // 3
        body = data[1:]
        dialect = list(PATHS)[data[0] % len(PATHS)]
        run_exchange(dialect, [body[i : i + size] for i in range(0, len(body), size)])


def main() -> None:
    try:
        atheris = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.exit("atheris is not installed; building it needs clang with libFuzzer (CLANG_BIN=…)")
    atheris.instrument_all()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
