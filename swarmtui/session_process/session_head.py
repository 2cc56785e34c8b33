"""Describe a session: what is measured, by which client, with which plan, and after which search."""

from __future__ import annotations

import os
import platform
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from swarmtui.engines.command_line import redact_flags
from swarmtui.engines.simulator import Simulator
from swarmtui.model.base import copy_fields
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.hosts import Host
from swarmtui.model.redaction import Redactor, mask_secrets
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import ClientInfo, Session
from swarmtui.model.session_tags import model_facts_from_tags
from swarmtui.prompts.filler_text import Calibration
from swarmtui.prompts.library import WorkloadFile
from swarmtui.sessions.documents import read_saved_summary
from swarmtui.sessions.index import baseline_of, list_sessions, live_row
from swarmtui.version import __version__

# Parts of a workload that are not copied into the session; its digest covers them.
_PROMPT_KEYS = ("prompts", "conversations", "warmup_prompts", "primary", "side", "tasks")


def describe_session(
    request: RunRequest,
    session_id: str,
    t0_ns: int,
    workload: WorkloadFile,
    digest: str,
    endpoints: tuple[Endpoint, ...],
    calibration: Calibration | None,
    hosts: tuple[Host, ...],
) -> Session:
    """Return the session as its journal stores it, without secrets."""
    redact = Redactor(request.secrets).redact  # a server may repeat the key as the name of its model
    return copy_fields(
        Session,
        request,
        id=session_id,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        t0_ns=t0_ns,
        endpoints=tuple(msgspec.structs.replace(one, model=redact(one.model)) for one in endpoints),
        workload=workload.workload.name,
        workload_digest=digest,
        workload_spec=_workload_spec(workload),
        workload_file="" if workload.builtin else workload.source,
        client=ClientInfo(
            version=__version__,
            python=platform.python_version(),
            host=socket.gethostname(),
            cores=os.cpu_count() or 1,
            kernel=platform.release(),
        ),
        hosts=hosts,
        model_facts=model_facts_from_tags(request.tags),
        server_flags=redact_flags(redact(request.server_flags)),
        prompt_tokens_by=calibration.by if calibration else "none",
        simulated=bool(endpoints) and all(endpoint.engine == Simulator.name for endpoint in endpoints),
    )


def compared_border(root: Path, session: Session) -> tuple[int, ...]:
    """Return the levels at the border of the search that a search is compared with: the answer, and the first missed.

    A search that visits them, too, shows what changed at the same load.
    """
    if session.plan.goal != "capacity":
        return ()
    rows = list_sessions(root)
    found = baseline_of(rows, live_row(session, None))
    before = next((read_saved_summary(row.directory) for row in rows if row.id == found), None)
    answer = before.answer if before is not None else None
    return tuple(c for c in (answer.agents, answer.missed_c) if c) if answer is not None else ()


def _workload_spec(workload: WorkloadFile) -> dict[str, object]:
    """Return the workload without its prompts, but with the type of a primary task."""
    spec = msgspec.to_builtins(workload.workload)
    kept = {key: value for key, value in spec.items() if key not in _PROMPT_KEYS}
    if "extra" in kept:
        kept["extra"] = mask_secrets(kept["extra"])
    return kept | {"primary": {"type": spec["primary"]["type"]}} if "primary" in spec else kept
