"""The request to run a session, sent from a client to a new session process."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from swarmtui.model.base import Stored
from swarmtui.model.endpoint import ApiChoice
from swarmtui.model.plan import Plan
from swarmtui.model.redaction import Secrets
from swarmtui.model.session_tags import Series

# How long a run waits for a server that went away.
RESTART_TIMEOUT_S = 120.0


class RunRequest(Stored, frozen=True, kw_only=True):
    """A request to run a session. It contains secrets, so it is only sent in a pipe.

    `endpoints` are URLs, or `sim:PRESET` for the embedded simulator; without `api` the path of the URL decides.
    `restart_timeout_s` is how long to wait for a server that goes away; zero ends the run. `salt` changes only the
    nonces at the start of prompts, so that the same requests are not in the prefix cache. `hosts` is written as on the
    command line; empty is this host. `keep_text`: keep whole answers. `previews`: keep the beginning of answers with a
    check.
    """

    endpoints: tuple[str, ...]
    workload: str
    plan: Plan
    session_root: str
    hosts: str = ""
    model: str | None = None
    api: ApiChoice | None = None
    secrets: Secrets = Secrets()
    ca_file: str | None = None
    insecure: bool = False
    keep_text: bool = False
    previews: bool = True
    gpus: bool = True
    metrics_urls: tuple[str, ...] = ()
    gpu_metrics_urls: tuple[str, ...] = ()
    model_path: str = ""
    restart_timeout_s: float = RESTART_TIMEOUT_S
    label: str = ""
    note: str = ""
    tags: dict[str, str] = {}
    series: Series | None = None
    server_flags: str = ""
    previous: str = ""
    repeats: bool = False
    salt: str = ""


decode_run_request: Callable[[bytes], RunRequest] = msgspec.msgpack.Decoder(RunRequest).decode
