"""The structs of config.toml: named endpoints, default options, and settings of the app. It contains no secrets."""

from __future__ import annotations

from typing import Any

from swarmtui.model.base import InputStruct
from swarmtui.model.endpoint import ApiChoice


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
        options = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if isinstance(self.levels, tuple):
            options["levels"] = ",".join(map(str, self.levels))
        options |= {name: str(options[name]) for name in ("requests", "warmup") if name in options}
        endpoint = options.pop("endpoint", None)
        return options | ({"endpoints": (endpoint,)} if endpoint else {})


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
