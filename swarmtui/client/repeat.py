"""Build the request that repeats a saved session."""

from __future__ import annotations

import secrets
from pathlib import Path

from swarmtui.client.catalogue import is_listening, load_workload, validate_endpoint
from swarmtui.client.config_file import merge_endpoints, read_api_key
from swarmtui.engines.simulator import simulator_address
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.model.redaction import MASK, Secrets
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Session, Summary
from swarmtui.prompts.library import workload_digest


def repeat_request(summary: Summary, config: Config, session_root: Path) -> RunRequest:
    """Return the request that runs the plan of a session again, with the session as its baseline.

    Raise BadInput, which says what to do, if the server does not answer, or if what the session needs is not stored.
    """
    session = summary.session
    if not session.endpoints:
        raise BadInput("this session is of another tool: start a new run on the setup screen")
    urls = _addresses(summary)
    known = {one.url: one for one in config.endpoints.values()}
    endpoint = merge_endpoints([known.get(url) or EndpointConfig(url=url) for url in urls])
    first = session.endpoints[0]
    return RunRequest(
        endpoints=urls,
        model=first.model,
        api=endpoint.api or first.dialect,
        workload=_workload(session),
        plan=session.plan,
        session_root=str(session_root),
        secrets=Secrets(api_key=read_api_key(endpoint.api_key_env), headers=endpoint.headers),
        ca_file=first.ca_file,
        insecure=first.insecure,
        metrics_urls=endpoint.metrics_urls,
        gpu_metrics_urls=endpoint.gpu_metrics_urls,
        model_path=endpoint.model_path,
        # Without the label and the typed flags: the server may have been started with others since.
        tags=session.tags,
        previous=session.id,
        # The same requests, but not in the server's prefix cache.
        salt=secrets.token_hex(4),
    )


def _addresses(summary: Summary) -> tuple[str, ...]:
    """Return the endpoints: the preset of a simulator that ended with its run, or servers that answer."""
    session = summary.session
    if session.endpoints[0].embedded:
        return (_simulator(summary),)
    for endpoint in session.endpoints:
        if MASK in endpoint.url:
            raise BadInput("a part of its address is not stored: type it on the setup screen")
        if not is_listening(endpoint.url):
            raise BadInput(f"nothing answers at {endpoint.url}: start the server, then press R")
    return tuple(endpoint.url for endpoint in session.endpoints)


def _simulator(summary: Summary) -> str:
    address = simulator_address(next((server.flags for server in summary.servers if server.flags), None))
    if address is None:
        raise BadInput("its simulator is not known: choose one on the setup screen")
    validate_endpoint(address)
    return address


def _workload(session: Session) -> str:
    """Return the path of the workload, if it still is the one of the session."""
    try:
        found = load_workload(session.workload)
    except BadInput:
        raise BadInput(f"workload {session.workload} is a file elsewhere: choose it on the setup screen") from None
    if workload_digest(found) != session.workload_digest:
        raise BadInput(f"workload {session.workload} has changed since: start a new run on the setup screen")
    return str(Path(found.source).resolve())
