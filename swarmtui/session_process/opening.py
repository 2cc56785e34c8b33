"""Before and behind the load: what the endpoints are, what the session is, what workers are told, what is counted late.

Everything that speaks HTTP here blocks, and is called in a thread.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import swarmtui
from swarmtui.model import worker_protocol
from swarmtui.model.endpoint import Endpoint, Secrets, dialect_of, parse_address
from swarmtui.model.record import Record
from swarmtui.model.run_request import SIMULATOR, Order
from swarmtui.model.session import Client, Session, TokenCount
from swarmtui.model.telemetry import Discovered
from swarmtui.prompts.calibrate import Calibration, needs_calibration
from swarmtui.prompts.generator import Source, open_source
from swarmtui.prompts.library import Found, digest
from swarmtui.session_process.sampler import Glance, Seen
from swarmtui.session_process.workers import Simulator, spool_path

_RECOUNT_S = 60.0

# One that has only just begun to answer does not tell everything at once.
_LOOKS = 2
_BETWEEN_LOOKS_S = 1.0


def look(
    order: Order, found: Found, simulators: list[Simulator], seen: Seen
) -> tuple[tuple[Endpoint, ...], Calibration | None]:
    """Blocking: runs in a thread while the workers start. Fills in what it starts and what it notices by the way."""
    from swarmtui.session_process.preflight import Unusable, Visit
    from swarmtui.telemetry.discovery import listeners_at

    endpoints: list[Endpoint] = []
    calibration = None
    for asked in order.endpoints:
        url, embedded = asked, asked.startswith(SIMULATOR)
        if embedded:
            simulator = Simulator(asked.removeprefix(SIMULATOR))
            simulators.append(simulator)
            url = simulator.url()
            if not url:
                raise Unusable(f"{asked}: the simulator did not start; see `swarmtui sim --list`")
        dialect, address = dialect_of(url), parse_address(url)
        visit = Visit(address, order.secrets, _verify(order))
        try:
            server = visit.look(dialect, order.model)
            if calibration is None and needs_calibration(found.workload):
                calibration = visit.calibrate(dialect, server.model, found.workload.system, order.plan.seed)
            if server.engine and not order.metrics_urls and (page := visit.glance(f"{address.root}/metrics")):
                seen.glances.append(page)
        finally:
            visit.close()
        endpoints.append(
            Endpoint(
                url=url,
                model=server.model,
                dialect=dialect,
                engine=server.engine,
                ca_file=order.ca_file,
                insecure=order.insecure,
                header_names=tuple(sorted(order.secrets.headers)),
                embedded=embedded,
            )
        )
    seen.listeners = listeners_at(parse_address(endpoint.url).root for endpoint in endpoints)
    seen.glances += _named_glances(order, {parse_address(endpoint.url).host for endpoint in endpoints})
    return tuple(endpoints), calibration


def _named_glances(order: Order, ours: set[str]) -> list[Glance]:
    """Of metrics pages that were named; what authorises us at the endpoints is told no other host."""
    from swarmtui.session_process.preflight import Visit

    seen = []
    for url in order.metrics_urls:
        address = parse_address(url)
        visit = Visit(address, order.secrets if address.host in ours else Secrets(), _verify(order))
        try:
            seen.append(visit.glance(url))
        finally:
            visit.close()
    return [glance for glance in seen if glance is not None]


def answers(order: Order, endpoints: tuple[Endpoint, ...]) -> bool:
    """Blocking, as `look`: whether all of them are there."""
    from swarmtui.session_process.preflight import Visit

    for endpoint in endpoints:
        visit = Visit(parse_address(endpoint.url), order.secrets, _verify(order))
        try:
            if not visit.answers(endpoint.dialect):
                return False
        finally:
            visit.close()
    return True


def differences(before: tuple[Discovered, ...], endpoints: tuple[Endpoint, ...]) -> str:
    """Blocking, as `look`: in what servers that came back differ from those that went away, if in anything."""
    from swarmtui.experiments.answer import server_change
    from swarmtui.telemetry.discovery import identify

    known = {server.url: server for server in before}
    for look in range(_LOOKS):
        time.sleep(look * _BETWEEN_LOOKS_S)
        now = [found for endpoint in endpoints if (found := identify(parse_address(endpoint.url).root)) is not None]
        told = [server_change(known[server.url], server) for server in now if server.url in known]
        if not any(told):
            return ""
    return "; ".join(text for text in told if text)


def _verify(order: Order) -> str | bool:
    return False if order.insecure else order.ca_file or True


def source_for(order: Order, found: Found, calibration: Calibration | None, endpoints: tuple[Endpoint, ...]) -> Source:
    plan = order.plan
    # llama.cpp keeps prompts unless told otherwise, and cold was promised.
    llama = any(endpoint.engine == "llama.cpp" for endpoint in endpoints)
    return open_source(
        found,
        seed=plan.seed,
        calibration=calibration,
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        salt=order.salt,
        cold_extra={"cache_prompt": False} if llama else None,
    )


def describe(
    order: Order,
    identity: str,
    t0_ns: int,
    found: Found,
    endpoints: tuple[Endpoint, ...],
    calibration: Calibration | None,
) -> Session:
    return Session(
        id=identity,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        t0_ns=t0_ns,
        endpoints=endpoints,
        workload=found.workload.name,
        workload_digest=digest(found),
        workload_spec=_spec(found),
        plan=order.plan,
        client=Client(
            version=swarmtui.__version__,
            python=platform.python_version(),
            host=socket.gethostname(),
            cores=os.cpu_count() or 1,
            kernel=platform.release(),
        ),
        label=order.label,
        note=order.note,
        tags=order.tags,
        server_flags=order.server_flags,
        previous=order.previous,
        prompt_tokens_by=calibration.by if calibration else "none",
        simulated=bool(endpoints) and all(endpoint.engine == "simulator" for endpoint in endpoints),
    )


def setup(
    order: Order, directory: Path, endpoints: tuple[Endpoint, ...], worker: int, workers: int
) -> worker_protocol.Setup:
    secrets = order.secrets
    targets = tuple(
        worker_protocol.Target(
            endpoint.url,
            endpoint.model,
            endpoint.dialect,
            secrets.api_key,
            secrets.headers,
            endpoint.ca_file,
            endpoint.insecure,
        )
        for endpoint in endpoints
    )
    spool = str(spool_path(directory, worker))
    return worker_protocol.Setup(worker, workers, targets, order.plan.timeouts, spool, order.keep_text)


def recount(order: Order, endpoint: Endpoint, uncounted: list[Record], counts: list[TokenCount]) -> None:
    """Answers that their server did not count are counted by it now, when no load is on it; adds to `counts`."""
    from swarmtui.session_process.preflight import Visit

    begun = time.monotonic()
    visit = Visit(parse_address(endpoint.url), order.secrets, _verify(order))
    for record in uncounted:
        tokens = visit.count_tokens(endpoint.model, (record.reasoning or "") + (record.text or ""))
        if tokens is None or time.monotonic() - begun > _RECOUNT_S:
            break
        counts.append(TokenCount(task=record.task, turn=record.turn, stretch=record.stretch, tokens_out=tokens))
    visit.close()


_ASKED = ("prompts", "conversations", "warmup_prompts", "primary", "side", "tasks")


def _spec(found: Found) -> dict[str, object]:
    """The workload as it was, without its prompts: those are in the digest. Of a main task its type stays."""
    spec = msgspec.to_builtins(found.workload)
    kept = {key: value for key, value in spec.items() if key not in _ASKED}
    return kept | {"primary": {"type": spec["primary"]["type"]}} if "primary" in spec else kept
