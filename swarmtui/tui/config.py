"""What a person has set in config.toml, and what the setup screen was last left with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from swarmtui.client import config_file
from swarmtui.model.config import Config, Known
from swarmtui.model.schema import BadInput, Stored
from swarmtui.sessions.paths import config_path

__all__ = ["Config", "Known", "Last", "first_choices", "read_config", "read_last", "write_last"]

_LAST = "setup.json"
_RECENT = 8


class Last(Stored, frozen=True, kw_only=True):
    """The choices of the last start, and the endpoints of the last few."""

    endpoint: str = ""
    model: str = ""
    workload: str = ""
    plan: str = ""
    levels: str = ""
    rate: str = ""
    runs: str = ""
    requests: str = ""
    warmup: str = ""
    recent: tuple[str, ...] = ()


def read_config(directory: Path | None = None) -> Config:
    """Who has no keymap of their own need not wait for the table of keys, which brings half of Textual."""
    config = config_file.read_config(directory)
    if config.keymap:
        _check(config, str(config_path(directory)))
    return config


def read_last(directory: Path | None = None) -> Last:
    try:
        return msgspec.json.decode(((directory or _state_directory()) / _LAST).read_bytes(), type=Last)
    except (OSError, msgspec.DecodeError):
        return Last()


def first_choices(last: Last, config: Config) -> Last:
    """What was chosen last; what was not is as [defaults] says, so that the app asks as `run` would."""
    said = config.defaults.options()
    endpoint = said.get("endpoints", ("",))[0]
    known = config.endpoints.get(endpoint)
    usual: dict[str, str] = {
        "endpoint": known.url if known else endpoint,
        "workload": said.get("workload", "coding"),
        "plan": "sweep" if "levels" in said else "manual",
        **{name: str(said[name]) for name in ("levels", "runs", "requests", "warmup") if name in said},
    }
    return msgspec.structs.replace(last, **{name: getattr(last, name) or value for name, value in usual.items()})


def write_last(last: Last, config: Config, directory: Path | None = None) -> None:
    """What is as usual is not written down: it may be another next time. A disk that refuses is no reason to stop."""
    path = (directory or _state_directory()) / _LAST
    usual = first_choices(Last(), config)
    kept: dict[str, Any] = {
        name: "" if getattr(last, name) == getattr(usual, name) else getattr(last, name)
        for name in Last.__struct_fields__
    }
    kept["recent"] = tuple(dict.fromkeys(last.recent))[:_RECENT]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(Last(**kept)))
    except OSError:
        pass


def _check(config: Config, source: str) -> None:
    from swarmtui.tui.keys import known_ids

    known = known_ids()
    for name in config.keymap:
        if name not in known:
            raise BadInput(f"no such action; there are {', '.join(sorted(known))}", source=source, key=f"keymap.{name}")


def _state_directory() -> Path:
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui"))
