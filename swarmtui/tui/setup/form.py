"""The fields of the setup screen: as typed, as remembered for the next start, and as input of the request builder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from swarmtui.client import catalogue
from swarmtui.client.request_builder import FieldError, PlanKind, RunChoices
from swarmtui.files import make_private_directory, read_file
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.config import Config, Defaults, EndpointConfig
from swarmtui.model.endpoint import show_url
from swarmtui.model.plan import LoadModeName

PlanField = Literal["levels", "rate", "runs", "requests", "warmup", "canaries"]

_FIELDS_OF_PLAN: dict[PlanKind, tuple[PlanField, ...]] = {
    "manual": ("warmup",),
    "cliff": ("requests", "warmup", "canaries"),
    "open": ("rate", "runs", "requests", "warmup"),
    "probe": (),
}
_FIELDS_OF_LOAD: dict[LoadModeName, tuple[PlanField, ...]] = {
    "closed": ("levels", "runs", "requests", "warmup", "canaries"),
    "open": ("runs", "requests", "warmup"),
    "ramp": ("warmup",),
    "sessions": ("levels", "runs", "requests", "warmup"),
    "dag": ("runs", "warmup"),
}
# Options of [defaults] that have a field, which decides.
_WITH_FIELD = ("endpoints", "workload", *get_args(PlanField))
_LABELS = {"endpoints": "endpoint", "api": "API", "mode": "plan", "warmup": "warm-up"}
_FILE = "setup.json"
_RECENT = 8


class SetupChoices(Stored, frozen=True, kw_only=True):
    """The choices of the last start, and the endpoints of the last few."""

    endpoint: str = ""
    model: str = ""
    workload: str = ""
    plan: str = ""
    api: str = ""
    levels: str = ""
    rate: str = ""
    runs: str = ""
    requests: str = ""
    warmup: str = ""
    canaries: str = ""
    hosts: str = ""
    recent: tuple[str, ...] = ()


class SetupForm(SetupChoices, frozen=True, kw_only=True):
    """An empty text falls back to the workload; `defaults` apply to options that have no field."""

    label: str = ""
    note: str = ""
    flags: str = ""
    configured: EndpointConfig | None = None
    defaults: Defaults = Defaults()


def plan_fields(plan: PlanKind, load: LoadModeName) -> tuple[PlanField, ...]:
    """Return the fields that apply to a plan; `load` is the load mode of the workload."""
    return _FIELDS_OF_LOAD.get(load, ("levels", "runs", "warmup")) if plan == "sweep" else _FIELDS_OF_PLAN[plan]


def run_choices(form: SetupForm, root: Path) -> RunChoices:
    """Map the form to the request builder; fields that do not apply to the plan are left out."""
    plan = cast(PlanKind, form.plan)
    applicable = plan_fields(plan, _load_mode(form.workload))
    typed: dict[str, Any] = {name: text for name in applicable if (text := str(getattr(form, name)).strip())}
    others = {name: value for name, value in form.defaults.options().items() if name not in _WITH_FIELD}
    if plan != "sweep" or "requests" not in applicable or "requests" in typed:
        others.pop("duration", None)
    return RunChoices(
        endpoints=(form.configured or EndpointConfig(url=form.endpoint),),
        session_root=str(root),
        workload=form.workload,
        model=form.model,
        api=form.api,
        mode=plan,
        hosts=form.hosts,
        label=form.label,
        note=form.note,
        server_flags=form.flags,
        **typed,
        **others,
    )


def error_text(error: FieldError) -> str:
    return f"{_LABELS.get(error.field, error.field)}: {error.message}"


def _load_mode(workload: str) -> LoadModeName:
    """The load mode of a workload; closed if the workload is invalid, which the request builder reports."""
    try:
        return catalogue.find_workload(workload).plan.load
    except BadInput:
        return "closed"


# remembered choices


def read_setup_choices(directory: Path | None = None) -> SetupChoices:
    try:
        return msgspec.json.decode(read_file((directory or _state_directory()) / _FILE), type=SetupChoices)
    except (OSError, msgspec.DecodeError):
        return SetupChoices()


def with_defaults(choices: SetupChoices, config: Config) -> SetupChoices:
    """Fill empty choices from [defaults] in config.toml, as `swarmtui run` does."""
    options = config.defaults.options()
    endpoint = options.get("endpoints", ("",))[0]
    known = config.endpoints.get(endpoint)
    defaults: dict[str, str] = {
        "endpoint": known.url if known else endpoint,
        "workload": options.get("workload", "coding"),
        "plan": "sweep" if "levels" in options else "manual",
        **{name: str(options[name]) for name in ("levels", "runs", "requests", "warmup") if name in options},
    }
    filled = {name: getattr(choices, name) or value for name, value in defaults.items()}
    return msgspec.structs.replace(choices, **filled)


def write_setup_choices(choices: SetupChoices, config: Config, directory: Path | None = None) -> None:
    """Save the choices that differ from the defaults, which may change; a full disk is ignored."""
    path = (directory or _state_directory()) / _FILE
    defaults = with_defaults(SetupChoices(), config)
    saved: dict[str, Any] = {
        name: "" if getattr(choices, name) == getattr(defaults, name) else getattr(choices, name)
        for name in SetupChoices.__struct_fields__
    }
    # An endpoint with a part that must not be stored has to be typed again.
    saved["endpoint"] = saved["endpoint"] if show_url(saved["endpoint"]) == saved["endpoint"] else ""
    saved["recent"] = tuple(url for url in dict.fromkeys(choices.recent) if show_url(url) == url)[:_RECENT]
    try:
        make_private_directory(path.parent)
        path.write_bytes(msgspec.json.encode(SetupChoices(**saved)))
    except OSError:
        pass


def _state_directory() -> Path:
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui"))
