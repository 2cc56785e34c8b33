"""What was chosen on the setup screen, turned into an order; or what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.client import catalogue
from swarmtui.client.request_builder import FieldError, PlanKind, RunChoices
from swarmtui.model.config import Defaults, EndpointConfig
from swarmtui.model.plan import Mode
from swarmtui.model.schema import BadInput

Kind = PlanKind
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
    known: EndpointConfig | None = None
    defaults: Defaults = Defaults()


def fields_of(plan: Kind, load: Mode) -> tuple[Field, ...]:
    """What there is to say of such a plan, `load` being the workload's own."""
    return _OF_LOAD.get(load, ("levels", "runs", "warmup")) if plan == "sweep" else _FIELDS[plan]


def run_choices(choice: Choice, root: Path) -> RunChoices:
    """Map the screen's fields to the request builder; fields that the chosen plan does not offer are left out."""
    offered = fields_of(choice.plan, _load_mode(choice.workload))
    typed = {name: text for name in offered if (text := str(getattr(choice, name)).strip())}
    usual = choice.defaults
    lasts = choice.plan == "sweep" and "requests" in offered and "requests" not in typed
    return RunChoices(
        endpoints=(choice.known or EndpointConfig(url=choice.endpoint),),
        session_root=str(root),
        workload=choice.workload,
        model=choice.model,
        mode=choice.plan,
        levels=typed.get("levels"),
        rate=typed.get("rate"),
        runs=typed.get("runs"),
        requests=typed.get("requests"),
        warmup=typed.get("warmup"),
        duration=usual.duration if lasts else None,
        max_tokens=usual.max_tokens,
        temperature=usual.temperature,
        seed=usual.seed,
        slo=usual.slo or "",
        timeout=usual.timeout or "600s",
        idle_timeout=usual.idle_timeout or "30s",
        on_restart=usual.on_restart or "wait",
        no_gpu=bool(usual.no_gpu),
        keep_text=bool(usual.keep_text),
        no_previews=bool(usual.no_previews),
        label=choice.label,
        note=choice.note,
        server_flags=choice.flags,
    )


def _load_mode(workload: str) -> Mode:
    """The load mode of a workload; closed if the workload is invalid, which the request builder reports."""
    try:
        return catalogue.find_workload(workload).plan.load
    except BadInput:
        return "closed"


_LABELS = {"endpoints": "endpoint", "mode": "plan", "warmup": "warm-up"}


def error_text(error: FieldError) -> str:
    return f"{_LABELS.get(error.field, error.field)}: {error.message}"
