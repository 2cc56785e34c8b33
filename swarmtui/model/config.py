"""config.toml: endpoints with a name, defaults of options, and how the app looks. No secret stands in it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from swarmtui.model.endpoint import parse_address
from swarmtui.model.run_request import SIMULATOR
from swarmtui.model.schema import BadInput, InputStruct, parse_toml

_SECRET_HEADERS = re.compile(r"authorization|cookie|token|secret|api-?key|password", re.IGNORECASE)
_STAYS_OUT = "a key does not belong in a file: name the variable that holds it with api_key_env"


class EndpointConfig(InputStruct, frozen=True, kw_only=True):
    """An endpoint with a name; the key itself stays in the environment. A relative `ca_file` lies beside the config."""

    url: str
    model: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = {}
    ca_file: str | None = None
    insecure: bool = False
    server_flags: str = ""
    metrics_urls: tuple[str, ...] = ()
    gpu_metrics_urls: tuple[str, ...] = ()


class Defaults(InputStruct, frozen=True, kw_only=True):
    """What `run` takes where the command line says nothing; texts as one would type them there."""

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
    timeout: str | None = None
    idle_timeout: str | None = None
    on_restart: str | None = None
    no_gpu: bool | None = None
    keep_text: bool | None = None
    no_previews: bool | None = None

    def options(self) -> dict[str, Any]:
        """Only what is said, as the command line would have it."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if isinstance(self.levels, tuple):
            said["levels"] = ",".join(map(str, self.levels))
        said |= {name: str(said[name]) for name in ("requests", "warmup") if name in said}
        endpoint = said.pop("endpoint", None)
        return said | ({"endpoints": (endpoint,)} if endpoint else {})


class Config(InputStruct, frozen=True, kw_only=True):
    theme: str = "swarm"
    refresh: float = 4.0
    endpoints: dict[str, EndpointConfig] = {}
    defaults: Defaults = Defaults()
    keymap: dict[str, str] = {}


def parse_config(text: str, source: str) -> Config:
    try:
        config = parse_toml(text, Config, source)
    except BadInput as problem:
        if re.fullmatch(r"endpoints\..+\.(api_?key|key|token|password)", problem.key):
            raise BadInput(_STAYS_OUT, source=source, key=problem.key, line=problem.line) from None
        raise
    for name, known in config.endpoints.items():
        _check(known, f"endpoints.{name}", source)
    if not 0.2 <= config.refresh <= 10:
        raise BadInput("expected 0.2 to 10 frames a second", source=source, key="refresh")
    return config


def _check(known: EndpointConfig, key: str, source: str) -> None:
    if not known.url.startswith(SIMULATOR):
        try:
            parse_address(known.url)
        except BadInput as problem:
            raise BadInput(problem.problem, source=source, key=f"{key}.url") from None
    variable = known.api_key_env
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise BadInput(f"expected the name of a variable; {_STAYS_OUT}", source=source, key=f"{key}.api_key_env")
    for header in known.headers:
        if _SECRET_HEADERS.search(header):
            raise BadInput(f"{_STAYS_OUT}, or give --header", source=source, key=f"{key}.headers.{header}")


def find_endpoint(text: str, endpoints: dict[str, EndpointConfig], source: str) -> EndpointConfig:
    """An endpoint by its name in the config, or as it was typed: an address, `host:port` or `sim:PRESET`."""
    if text in endpoints:
        return endpoints[text]
    if re.search(r"[./:]", text) or text == "localhost" or not text:
        return EndpointConfig(url=text)
    import difflib  # for a mistake only

    close = difflib.get_close_matches(text, endpoints, n=1)
    known = f" (there are {', '.join(endpoints)})" if endpoints else ""
    guess = f"; did you mean {close[0]}?" if close else f"; a host is written http://{text}"
    raise BadInput(f"no endpoint is called {text!r} in {source}{known}{guess}", key="--endpoint")


def merge_endpoints(endpoints: list[EndpointConfig]) -> EndpointConfig:
    """Of replicas that one run asks alike: a key goes to none that it was not given for."""
    first, *others = endpoints
    for other in others:
        for name in ("model", "api_key_env", "headers", "ca_file", "insecure"):
            if getattr(first, name) != getattr(other, name):
                raise BadInput(f"{first.url} and {other.url} differ in {name}: one run has one", key="--endpoint")
    urls = (tuple(dict.fromkeys(url for one in endpoints for url in getattr(one, name))) for name in _LISTS)
    return msgspec.structs.replace(first, **dict(zip(_LISTS, urls, strict=True)))


_LISTS = ("metrics_urls", "gpu_metrics_urls")
