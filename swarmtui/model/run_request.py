"""What a face asks a conductor to do: a session, before anything of it has happened."""

from __future__ import annotations

import msgspec

from swarmtui.model.endpoint import Secrets
from swarmtui.model.plan import Plan, parse_seconds
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.session_tags import Series

# So long is a server waited for that went away in mid-run.
RESTART_S = 120.0

SIMULATOR = "sim:"


def parse_restart(text: str, key: str) -> float:
    """`wait`, `stop` or a time: how long a server that went away is waited for."""
    known = {"wait": RESTART_S, "stop": 0.0}
    if text in known:
        return known[text]
    try:
        return parse_seconds(text, key)
    except BadInput:
        raise BadInput(f"{text!r} is neither wait nor stop nor a time like 90s", key=key) from None


class RunRequest(Stored, frozen=True, kw_only=True):
    """`endpoints` are URLs, or `sim:PRESET` for the embedded simulator. Travels in a pipe: it holds secrets.

    `restart_s`: how long a server that went away in mid-run is waited for; zero ends the run.
    `salt` changes the nonces at the start of prompts and nothing else: the same requests, and no cache knows them.
    `keep_text`: whole answers are kept; `previews`: the beginning of those that carry a check.
    """

    endpoints: tuple[str, ...]
    workload: str
    plan: Plan
    session_root: str
    model: str | None = None
    secrets: Secrets = Secrets()
    ca_file: str | None = None
    insecure: bool = False
    keep_text: bool = False
    previews: bool = True
    gpus: bool = True
    metrics_urls: tuple[str, ...] = ()
    gpu_metrics_urls: tuple[str, ...] = ()
    restart_s: float = RESTART_S
    label: str = ""
    note: str = ""
    tags: dict[str, str] = {}
    series: Series | None = None
    server_flags: str = ""
    previous: str = ""
    salt: str = ""


_decoder = msgspec.msgpack.Decoder(RunRequest)


def decode_run_request(body: bytes) -> RunRequest:
    return _decoder.decode(body)
