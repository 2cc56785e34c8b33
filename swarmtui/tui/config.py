"""Read config.toml for the app, and remember the last choices on the setup screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from swarmtui.client import config_file
from swarmtui.files import make_private_directory, read_file
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.model.schema import BadInput, Stored
from swarmtui.sessions.files import config_path

__all__ = [
    "Config", "EndpointConfig", "SetupChoices", "read_config", "read_setup_choices", "with_defaults",
    "write_setup_choices",
]  # fmt: skip

_FILE = "setup.json"
_RECENT = 8


class SetupChoices(Stored, frozen=True, kw_only=True):
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
    """Read config.toml; the key table, which imports much of Textual, is loaded only to check a [keymap]."""
    config = config_file.read_config(directory)
    if config.keymap:
        _check_keymap(config, str(config_path(directory)))
    return config


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
    saved["recent"] = tuple(dict.fromkeys(choices.recent))[:_RECENT]
    try:
        make_private_directory(path.parent)
        path.write_bytes(msgspec.json.encode(SetupChoices(**saved)))
    except OSError:
        pass


def _check_keymap(config: Config, source: str) -> None:
    from swarmtui.tui.keys import known_ids

    known = known_ids()
    for name in config.keymap:
        if name not in known:
            raise BadInput(f"no such action; known are {', '.join(sorted(known))}", source=source, key=f"keymap.{name}")


def _state_directory() -> Path:
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui"))
