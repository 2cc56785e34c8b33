"""The structs of config.toml: named endpoints, default options, and settings of the app. It contains no secrets."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from swarmtui.model.base import BadInput, InputStruct
from swarmtui.model.endpoint import SIMULATOR_PREFIX, ApiChoice, check_url, show_url
from swarmtui.model.parsing import parse_toml, suggest
from swarmtui.model.redaction import is_secret_name, looks_like_key

_NO_SECRETS = "do not store a key in a file; set api_key_env to the environment variable that holds it"


class EndpointConfig(InputStruct, frozen=True, kw_only=True):
    """A named endpoint. Its API key stays in the environment; a relative `ca_file` is relative to config.toml."""

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


def parse_config(text: str, source: str) -> Config:
    try:
        config = parse_toml(text, Config, source)
    except BadInput as problem:
        if re.fullmatch(r"endpoints\..+\.(api_?key|key|token|password)", problem.key):
            raise BadInput(_NO_SECRETS, source=source, key=problem.key, line=problem.line) from None
        raise
    for name, endpoint in config.endpoints.items():
        _validate_endpoint(endpoint, f"endpoints.{name}", source)
    if not 0.2 <= config.refresh <= 10:
        raise BadInput("expected 0.2 to 10 frames per second", source=source, key="refresh")
    return config


def _validate_endpoint(endpoint: EndpointConfig, key: str, source: str) -> None:
    if not endpoint.url.startswith(SIMULATOR_PREFIX):
        try:
            check_url(endpoint.url)
        except BadInput as problem:
            raise BadInput(problem.problem, source=source, key=f"{key}.url") from None
    if endpoint.api_key_env is not None and not is_variable_name(endpoint.api_key_env):
        raise BadInput(
            f"expected the name of an environment variable; {_NO_SECRETS}", source=source, key=f"{key}.api_key_env"
        )
    for header in endpoint.headers:
        if is_secret_name(header):
            raise BadInput(f"{_NO_SECRETS}, or use --header", source=source, key=f"{key}.headers.{header}")


def is_variable_name(text: str) -> bool:
    """Return whether this may be the name of a variable that holds a key, and is not the key itself."""
    return bool(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text)) and not looks_like_key(text)


def find_endpoint(text: str, endpoints: dict[str, EndpointConfig], source: str) -> EndpointConfig:
    """Return the endpoint with this name in the config, or one for an address, `host:port` or `sim:PRESET`."""
    if text in endpoints:
        return endpoints[text]
    if re.search(r"[./:]", text) or text == "localhost" or not text:
        return EndpointConfig(url=text)
    known = f" (configured: {', '.join(endpoints)})" if endpoints else ""
    guess = suggest(text, list(endpoints), "; ") or f"; write a host as http://{text}"
    raise BadInput(f"no endpoint named {text!r} in {source}{known}{guess}", key="--endpoint")


def merge_endpoints(endpoints: list[EndpointConfig]) -> EndpointConfig:
    """Merge the replicas of one run; they must share credentials, so that no key is sent to another endpoint."""
    first, *others = endpoints
    for other in others:
        for name in ("model", "api", "api_key_env", "headers", "ca_file", "insecure"):
            if getattr(first, name) != getattr(other, name):
                both = f"{show_url(first.url)} and {show_url(other.url)}"
                raise BadInput(f"{both} differ in {name}; the endpoints of a run must share it", key="--endpoint")
    urls = {
        name: tuple(dict.fromkeys(url for one in endpoints for url in getattr(one, name)))
        for name in ("metrics_urls", "gpu_metrics_urls")
    }
    return msgspec.structs.replace(first, **urls)
