"""The structs of config.toml: named endpoints, default options, and settings of the app. It contains no secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from swarmtui.model.base import InputStruct
from swarmtui.model.endpoint import ApiChoice

# Options that the command line takes as text: a number of these is in seconds, or a share.
_SECONDS = ("duration", "max_gap", "budget", "timeout", "idle_timeout", "on_restart")
_SHARES = ("precision", "canaries")


def as_option(name: str, value: Any) -> Any:
    """Return an option as the command line has it: `[1, 2]` is `1,2`, 30 is `30s`, 0.02 is `2%`, a dict is K=V."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return tuple(f"{key}={text}" for key, text in value.items())
    if isinstance(value, PathLike):
        return str(value)
    if name in ("levels", "rate", "serial_rates"):
        return ",".join(map(str, value)) if isinstance(value, Sequence) else str(value)
    if name in _SECONDS:
        return f"{value:g}s"
    if name in _SHARES:
        return f"{100 * value:g}%"
    return str(value) if name in ("runs", "requests", "warmup") else value


class EndpointConfig(InputStruct, frozen=True, kw_only=True):
    """A named endpoint. Its API key stays in the environment; a relative `ca_file` is relative to config.toml.

    `model_path` is where the files of its model are on this host, if they are not found by its process.
    """

    url: str
    model: str | None = None
    api: ApiChoice | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    insecure: bool = False
    server_flags: str = ""
    metrics_urls: tuple[str, ...] = ()
    gpu_metrics_urls: tuple[str, ...] = ()
    model_path: str = ""


class Defaults(InputStruct, frozen=True, kw_only=True):
    """Values for options of `run` that are not on the command line, written as they would be there."""

    endpoint: str | None = None
    workload: str | None = None
    levels: str | tuple[int, ...] | None = None
    runs: int | None = None
    requests: str | int | None = None
    duration: str | None = None
    warmup: str | int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    slo: str | None = None
    canaries: str | None = None
    complete: bool | None = None
    precision: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None
    on_restart: str | None = None
    no_gpu: bool | None = None
    keep_text: bool | None = None
    no_previews: bool | None = None

    def options(self) -> dict[str, Any]:
        """Return the options that are set, in the form of the command line."""
        found = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "endpoint")
        options = {name: as_option(name, value) for name, value in found if value is not None}
        return options | ({"endpoints": (self.endpoint,)} if self.endpoint else {})


class Config(InputStruct, frozen=True, kw_only=True):
    """The whole file; `refresh` is in frames per second, `keymap` maps actions of the app to keys.

    `stream_text`: show the text of the streams on the live screen.
    Without `mouse` the terminal itself handles the mouse, for example to select text.
    """

    theme: str = "swarm"
    mouse: bool = True
    refresh: float = 4.0
    stream_text: bool = True
    endpoints: dict[str, EndpointConfig] = {}
    defaults: Defaults = Defaults()
    keymap: dict[str, str] = {}
