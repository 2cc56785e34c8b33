"""The choices of the setup screen: which of them apply to a plan, and what is remembered for the next start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from swarmtui.client import catalogue
from swarmtui.client.choices import PlanKind, RunChoices
from swarmtui.client.plan_builder import build_plan
from swarmtui.files import make_private_directory, read_file, state_directory
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.config import Config
from swarmtui.model.endpoint import show_url
from swarmtui.model.load import Closed, Load
from swarmtui.model.plan import Plan

PlanField = Literal[
    "levels", "rate", "runs", "requests", "precision", "slo", "max_tokens", "warmup", "canaries", "too_long"
]
PLAN_FIELDS: tuple[PlanField, ...] = get_args(PlanField)

_FIELDS_OF_PLAN: dict[PlanKind, tuple[PlanField, ...]] = {
    "quick": ("slo", "max_tokens", "warmup"),
    "capacity": ("slo", "max_tokens", "warmup"),
    "manual": ("warmup", "max_tokens"),
    "cliff": ("requests", "precision", "warmup", "canaries", "max_tokens"),
    "open": ("rate", "runs", "requests", "warmup", "max_tokens", "slo"),
    "probe": ("max_tokens",),
}
_REMEMBERED = ("endpoints", "model", "workload", "plan", "api", "hosts", *PLAN_FIELDS)
_LABELS = {
    "endpoints": "endpoint", "api": "API", "warmup": "warm-up", "too_long": "too long", "slo": "SLO",
    "max_tokens": "max tokens",
}  # fmt: skip
_FILE = "setup.json"
_RECENT = 8


class LastSetup(Stored, frozen=True, kw_only=True):
    """The choices of the last start, completed from [defaults] in config.toml, and the endpoints of the last few."""

    choices: RunChoices = RunChoices(plan="quick")
    recent: tuple[str, ...] = ()

    @property
    def endpoint(self) -> str:
        return self.choices.endpoints[0] if self.choices.endpoints else ""


class _SavedSetup(Stored, frozen=True, kw_only=True):
    """Only what differs from the defaults, which may change."""

    choices: dict[str, Any] = {}
    recent: tuple[str, ...] = ()


def default_plan(workload: str, kind: PlanKind) -> Plan:
    """Return the plan that empty fields stand for, whatever the endpoint; an open loop has one request per second."""
    rate = "1" if kind == "open" else None
    return build_plan(catalogue.load_workload(workload).workload, RunChoices(plan=kind, rate=rate))


def plan_fields(plan: PlanKind, load: Load) -> tuple[PlanField, ...]:
    """Return the fields that apply to a plan; `load` is that of the workload."""
    trace = load.replayed or load.follows_trace
    if plan != "sweep":
        return (*_FIELDS_OF_PLAN[plan], "too_long") if trace else _FIELDS_OF_PLAN[plan]
    has: dict[PlanField, bool] = {
        "slo": True,
        "levels": load.levels_key is not None,
        "runs": not load.continuous,
        "requests": load.has("requests"),
        "warmup": True,
        "max_tokens": True,
        "canaries": load.has("canaries"),
        "precision": load.has("precision"),
        "too_long": trace,
    }
    return tuple(name for name in PLAN_FIELDS if has.get(name))


def applicable(choices: RunChoices) -> RunChoices:
    """Leave out the choices that do not apply to the plan."""
    fields = plan_fields(choices.plan, _load(choices.workload))
    dropped = [name for name in PLAN_FIELDS if name not in fields]
    timed = choices.plan == "sweep" and "requests" in fields and not choices.requests
    unused = dict.fromkeys(dropped if timed else [*dropped, "duration"])
    return msgspec.structs.replace(choices, **unused | ({"slo": ""} if "slo" in unused else {}))


def parse_max_tokens(text: str) -> int | None:
    """Return the tokens of the field, None if it is empty."""
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9 or not int(text):
        raise BadInput(f"{text!r} is not a whole number above 0", key="max_tokens")
    return int(text)


def error_text(error: BadInput) -> str:
    return f"{_LABELS.get(error.key, error.key)}: {error.problem}"


def _load(workload: str) -> Load:
    """The load of a workload; a closed loop if the workload is invalid, which the request builder reports."""
    try:
        return catalogue.find_workload(workload).plan.load
    except BadInput:
        return Closed()


# remembered choices


def default_choices(config: Config) -> RunChoices:
    """Return the [defaults] of config.toml, as `swarmtui run` has them."""
    options = config.defaults.options()
    endpoint = options.pop("endpoints", ("",))[0]
    known = config.endpoints.get(endpoint)
    endpoints = tuple(filter(None, (known.url if known else endpoint,)))
    return RunChoices(endpoints=endpoints, plan="sweep" if "levels" in options else "quick", **options)


def read_setup(config: Config, directory: Path | None = None) -> LastSetup:
    """Return the last choices; what was not chosen, or cannot be read, is as in the config."""
    defaults = default_choices(config)
    try:
        saved = msgspec.json.decode(read_file((directory or state_directory()) / _FILE), type=_SavedSetup)
        chosen = {name: value for name, value in saved.choices.items() if name in _REMEMBERED}
        choices = msgspec.convert(msgspec.to_builtins(defaults) | chosen, RunChoices)
    except (OSError, msgspec.DecodeError):
        return LastSetup(choices=defaults)
    return LastSetup(choices=choices, recent=saved.recent)


def write_setup(setup: LastSetup, config: Config, directory: Path | None = None) -> None:
    """Save the choices that differ from the defaults; a full disk is ignored."""
    path = (directory or state_directory()) / _FILE
    defaults = default_choices(config)
    # Endpoints with a part that must not be stored have to be typed again.
    storable = all(show_url(url) == url for url in setup.choices.endpoints)
    names = [name for name in _REMEMBERED if storable or name != "endpoints"]
    changed = {name: value for name in names if (value := getattr(setup.choices, name)) != getattr(defaults, name)}
    recent = tuple(url for url in dict.fromkeys(setup.recent) if show_url(url) == url)[:_RECENT]
    try:
        make_private_directory(path.parent)
        path.write_bytes(msgspec.json.encode(_SavedSetup(choices=changed, recent=recent)))
    except OSError:
        pass
