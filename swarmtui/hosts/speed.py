"""Check how many streams each host of a cluster can follow, and all of them together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from swarmtui.hosts.pool import HostLink, HostPool
from swarmtui.model.host_protocol import HostSpeed
from swarmtui.model.hosts import Host
from swarmtui.model.telemetry import QualityLine
from swarmtui.processes.selftest import TYPICAL_TPS
from swarmtui.text import count_noun

Result = tuple[Host, HostSpeed]


def check_host_speeds(hosts: str, streams: int) -> Iterator[QualityLine]:
    """Yield a line per host, and one for the cluster; BadInput says why the hosts cannot be used."""
    results = asyncio.run(_measure(hosts))
    for host, speed in results:
        if speed.problem:
            yield _line(host.name, "wrong", "not measured", f"the self-test failed: {speed.problem}")
        else:
            value = f"{_streams(speed.streams)} ({speed.token_us:.0f} µs per token)"
            yield _line(host.name, "ok", value, f"{host.cores} cores")
    total, machines = cluster_streams(results)
    value = f"{_streams(total)} on {count_noun(machines, 'machine')}"
    if total >= streams:
        yield _line("cluster", "ok", value, f"fast enough for C = {streams:,}")
    else:
        yield _line("cluster", "doubtful", value, f"too slow for C = {streams:,}: add hosts, or stop other programs")


def cluster_streams(results: Iterable[Result]) -> tuple[int, int]:
    """Return the streams of all machines, and their number; nodes on one machine share its cores."""
    by_machine: defaultdict[str, int] = defaultdict(int)
    for host, speed in results:
        by_machine[host.machine] = max(by_machine[host.machine], speed.streams)
    return sum(by_machine.values()), len(by_machine)


async def _measure(hosts: str) -> list[Result]:
    pool = HostPool(hosts, on_lost=lambda link, how: None)
    try:
        await pool.start()
        machines: defaultdict[str, list[HostLink]] = defaultdict(list)
        for link in pool.links:
            machines[link.host.machine].append(link)
        measured = await asyncio.gather(*map(_measure_machine, machines.values()))
        return sorted((result for results in measured for result in results), key=lambda result: result[0].name)
    finally:
        await pool.close()


async def _measure_machine(links: list[HostLink]) -> list[Result]:
    """Measure the nodes of one machine one after the other: they would slow each other down."""
    results = []
    for link in links:
        try:
            speed = await link.measure_speed()
        except OSError as error:
            speed = HostSpeed(problem=str(error) or "no result in time")
        results.append((link.host, speed))
    return results


def _line(name: str, state: Literal["ok", "doubtful", "wrong"], value: str, sentence: str) -> QualityLine:
    return QualityLine(code="host_speed", name=name, state=state, value=value, sentence=sentence)


def _streams(count: int) -> str:
    return f"{count:,} streams × {TYPICAL_TPS:g} tok/s"
