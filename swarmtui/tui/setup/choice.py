"""What was chosen on the setup screen, turned into an order; or what is wrong with it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.limits.slo import checked_slo
from swarmtui.client import catalogue
from swarmtui.client.config_file import check_ca_file, read_secrets
from swarmtui.model.config import Defaults, Known
from swarmtui.model.plan import Mode, timeouts_of
from swarmtui.model.plan_options import PROBE, Asked, plan_for, probe_tag
from swarmtui.model.run_request import Order, restart_of
from swarmtui.model.schema import BadInput

Kind = Literal["sweep", "manual", "cliff", "open", "probe"]
Field = Literal["levels", "rate", "runs", "requests", "warmup"]

_FIELDS: dict[Kind, tuple[Field, ...]] = {
    "manual": ("warmup",),
    "cliff": ("requests", "warmup"),
    "open": ("rate", "runs", "requests", "warmup"),
    "probe": (),
}
_OF_LOAD: dict[Mode, tuple[Field, ...]] = {
    "closed": ("levels", "runs", "requests", "warmup"),
    "open": ("runs", "requests", "warmup"),
    "ramp": ("warmup",),
    "dag": ("runs", "warmup"),
}


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """As typed; texts are read only when an order is made of them, and an empty one leaves it to the workload.

    `defaults` count for what has no field here.
    """

    endpoint: str
    model: str
    workload: str
    plan: Kind
    levels: str = ""
    rate: str = ""
    runs: str = ""
    requests: str = ""
    warmup: str = ""
    label: str = ""
    note: str = ""
    flags: str = ""
    known: Known | None = None
    defaults: Defaults = Defaults()


def fields_of(plan: Kind, load: Mode) -> tuple[Field, ...]:
    """What there is to say of such a plan, `load` being the workload's own."""
    return _OF_LOAD.get(load, ("levels", "runs", "warmup")) if plan == "sweep" else _FIELDS[plan]


def make_order(choice: Choice, root: Path) -> Order:
    """Raises BadInput with the name of the field for the first thing that cannot be."""
    catalogue.check_endpoint(choice.endpoint)
    found = catalogue.workload(choice.workload)
    endpoints, known, usual = (choice.endpoint,), choice.known or Known(url=choice.endpoint), choice.defaults
    if known.ca_file is not None:
        check_ca_file(known.ca_file, "ca_file")
    return Order(
        endpoints=endpoints,
        model=choice.model.strip() or None,
        workload=found.path,
        plan=plan_for(
            found.workload,
            _asked(choice, found.plan.load),
            seed=usual.seed if usual.seed is not None else secrets.randbelow(1_000_000),
            max_tokens=usual.max_tokens,
            temperature=usual.temperature,
            slo=checked_slo(usual.slo or ""),
            timeouts=timeouts_of(usual.timeout or "600s", usual.idle_timeout or "30s"),
        ),
        session_root=str(root),
        secrets=read_secrets(known.api_key_env, known.headers, "api_key_env"),
        ca_file=known.ca_file,
        insecure=known.insecure,
        keep_text=bool(usual.keep_text),
        previews=not usual.no_previews,
        gpus=not usual.no_gpu,
        restart_s=restart_of(usual.on_restart or "wait", "on_restart"),
        server_flags=choice.flags.strip() or known.server_flags,
        metrics_urls=known.metrics_urls,
        gpu_metrics_urls=known.gpu_metrics_urls,
        label=choice.label.strip(),
        note=choice.note.strip(),
        tags=probe_tag(endpoints) if choice.plan == "probe" else {},
    )


def _asked(choice: Choice, load: Mode) -> Asked:
    """Only what counts for this plan: what is left in a field from another one is not meant."""
    if choice.plan == "probe":
        return PROBE
    said: dict[str, str] = {}
    offered = fields_of(choice.plan, load)
    for name in offered:
        if text := str(getattr(choice, name)).strip():
            said[name] = text
    if choice.plan == "open" and "rate" not in said:
        raise BadInput("how many requests a second? For example 4, or 2,4,8", key="rate")
    lasts = "requests" in offered and "requests" not in said
    return Asked(
        mode=choice.plan if choice.plan in ("manual", "cliff") else "sweep",
        levels=said.get("levels"),
        rate=said.get("rate"),
        runs=_number(said["runs"], "runs", 1, 1000) if "runs" in said else None,
        requests=said.get("requests"),
        duration=choice.defaults.duration if choice.plan == "sweep" and lasts else None,
        warmup=said.get("warmup"),
    )


def _number(text: str, key: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise BadInput(f"a number from {least} to {most}", key=key)
    return int(text)
