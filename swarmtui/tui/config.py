"""What a person has set in config.toml, and what the setup screen was last left with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.model.schema import BadInput, Given, Stored, read_toml

CONFIG = "config.toml"
_LAST = "setup.json"
_RECENT = 8


class Known(Given, frozen=True, kw_only=True):
    """An endpoint with a name; the key itself stays in the environment."""

    url: str
    model: str | None = None
    api_key_env: str | None = None


class Config(Given, frozen=True, kw_only=True):
    theme: str = "swarm"
    refresh: float = 4.0
    endpoints: dict[str, Known] = {}
    keymap: dict[str, str] = {}


class Last(Stored, frozen=True, kw_only=True):
    """The choices of the last start, and the endpoints of the last few."""

    endpoint: str = ""
    model: str = ""
    workload: str = "coding"
    plan: str = "manual"
    levels: str = "1,2,4,8"
    runs: str = "1"
    requests: str = "4C"
    warmup: str = "4"
    recent: tuple[str, ...] = ()


def read_config(directory: Path | None = None) -> Config:
    """Nothing there is fine; something wrong in it is said with file and key."""
    path = (directory or _config_directory()) / CONFIG
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {error}", source=str(path)) from None
    config = read_toml(text, Config, str(path))
    _check(config, str(path))
    return config


def read_last(directory: Path | None = None) -> Last:
    try:
        return msgspec.json.decode(((directory or _state_directory()) / _LAST).read_bytes(), type=Last)
    except (OSError, msgspec.DecodeError):
        return Last()


def write_last(last: Last, directory: Path | None = None) -> None:
    """Only a convenience: a disk that does not take it is no reason to stop."""
    path = (directory or _state_directory()) / _LAST
    recent = tuple(dict.fromkeys((last.endpoint, *last.recent)))[:_RECENT]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(last, recent=recent)))
    except OSError:
        pass


def _check(config: Config, source: str) -> None:
    from swarmtui.tui.keys import known_ids

    known = known_ids()
    for name in config.keymap:
        if name not in known:
            raise BadInput(f"no such action; there are {', '.join(sorted(known))}", source=source, key=f"keymap.{name}")
    if not 0.2 <= config.refresh <= 10:
        raise BadInput("expected 0.2 to 10 frames a second", source=source, key="refresh")


def _config_directory() -> Path:
    from platformdirs import user_config_dir

    return Path(user_config_dir("swarmtui"))


def _state_directory() -> Path:
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui"))
