"""The fields of the setup screen as typed, and their mapping to the request builder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.client import catalogue
from swarmtui.client.request_builder import FieldError, PlanKind, RunChoices
from swarmtui.model.config import Defaults, EndpointConfig
from swarmtui.model.plan import Mode
from swarmtui.model.schema import BadInput

PlanField = Literal["levels", "rate", "runs", "requests", "warmup"]

_FIELDS_OF_PLAN: dict[PlanKind, tuple[PlanField, ...]] = {
    "manual": ("warmup",),
    "cliff": ("requests", "warmup"),
    "open": ("rate", "runs", "requests", "warmup"),
    "probe": (),
}
_FIELDS_OF_LOAD: dict[Mode, tuple[PlanField, ...]] = {
    "closed": ("levels", "runs", "requests", "warmup"),
    "open": ("runs", "requests", "warmup"),
    "ramp": ("warmup",),
    "dag": ("runs", "warmup"),
}
_LABELS = {"endpoints": "endpoint", "mode": "plan", "warmup": "warm-up"}


class SetupForm(msgspec.Struct, frozen=True, kw_only=True):
    """An empty text falls back to the workload; `defaults` apply to options that have no field."""

    endpoint: str
    model: str
    workload: str
    plan: PlanKind
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


def plan_fields(plan: PlanKind, load: Mode) -> tuple[PlanField, ...]:
    """Return the fields that apply to a plan; `load` is the load mode of the workload."""
    return _FIELDS_OF_LOAD.get(load, ("levels", "runs", "warmup")) if plan == "sweep" else _FIELDS_OF_PLAN[plan]


def run_choices(form: SetupForm, root: Path) -> RunChoices:
    """Map the form to the request builder; fields that do not apply to the plan are left out."""
    applicable = plan_fields(form.plan, _load_mode(form.workload))
    typed = {name: text for name in applicable if (text := str(getattr(form, name)).strip())}
    defaults = form.defaults
    has_duration = form.plan == "sweep" and "requests" in applicable and "requests" not in typed
    return RunChoices(
        endpoints=(form.known or EndpointConfig(url=form.endpoint),),
        session_root=str(root),
        workload=form.workload,
        model=form.model,
        mode=form.plan,
        levels=typed.get("levels"),
        rate=typed.get("rate"),
        runs=typed.get("runs"),
        requests=typed.get("requests"),
        warmup=typed.get("warmup"),
        duration=defaults.duration if has_duration else None,
        max_tokens=defaults.max_tokens,
        temperature=defaults.temperature,
        seed=defaults.seed,
        slo=defaults.slo or "",
        timeout=defaults.timeout or "600s",
        idle_timeout=defaults.idle_timeout or "30s",
        on_restart=defaults.on_restart or "wait",
        no_gpu=bool(defaults.no_gpu),
        keep_text=bool(defaults.keep_text),
        no_previews=bool(defaults.no_previews),
        label=form.label,
        note=form.note,
        server_flags=form.flags,
    )


def error_text(error: FieldError) -> str:
    return f"{_LABELS.get(error.field, error.field)}: {error.message}"


def _load_mode(workload: str) -> Mode:
    """The load mode of a workload; closed if the workload is invalid, which the request builder reports."""
    try:
        return catalogue.find_workload(workload).plan.load
    except BadInput:
        return "closed"
