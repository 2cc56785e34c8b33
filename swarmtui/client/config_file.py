"""Read config.toml, find the endpoints of a run in it, and check the secrets and certificates that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from swarmtui.files import config_path, read_file
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.model.endpoint import SIMULATOR_PREFIX, check_url, show_url
from swarmtui.model.parsing import parse_toml, suggest
from swarmtui.model.redaction import MASK, is_secret_name, looks_like_key

_NO_SECRETS = "do not store a key in a file; set api_key_env to the environment variable that holds it"
_HEADER_VALUE = re.compile(r"[\t -~]*")


def read_config(directory: Path | None = None) -> Config:
    """Return the defaults if there is no file; an error in the file names its key."""
    path = config_path(directory)
    try:
        text = read_file(path).decode()
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}", source=str(path)) from None
    config = parse_config(text, str(path))
    endpoints = {
        # The path of a certificate file is relative to the config file.
        name: msgspec.structs.replace(known, ca_file=str(path.parent / Path(known.ca_file).expanduser()))
        for name, known in config.endpoints.items()
        if known.ca_file is not None
    }
    return msgspec.structs.replace(config, endpoints=config.endpoints | endpoints)


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
    text = MASK if looks_like_key(text) else text
    known = f" (configured: {', '.join(endpoints)})" if endpoints else ""
    port = text.isdecimal() and 0 < int(text) < 65536
    address = f"; write a port of this host as http://127.0.0.1:{text}" if port else f"; write a host as http://{text}"
    guess = suggest(text, list(endpoints), "; ") or address
    raise BadInput(f"no endpoint named {text!r} in {source}{known}{guess}", key="--endpoint")


def find_endpoints(texts: Sequence[str]) -> list[EndpointConfig]:
    """Look up names of config.toml; anything else is an address or a simulator preset."""
    configured = read_config().endpoints
    mistakes = Mistakes()
    found = [mistakes.catch(find_endpoint, text, configured, str(config_path())) for text in texts]
    mistakes.raise_all()
    return [one for one in found if one is not None]


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


def check_ca_file(path: str) -> None:
    """Load the certificates once before the run starts, so that a wrong file does not fail in a worker."""
    import ssl

    try:
        read_file(path)
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise BadInput(f"{path} holds no certificate in PEM form") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def read_api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    value = os.environ.get(variable, "").strip()
    if not value and not (variable.isupper() and is_variable_name(variable)):
        # It may be the key itself.
        raise BadInput("expected the name of an environment variable that holds the key, not the key; none is set")
    if not value:
        raise BadInput(f"the variable {variable} is not set, or empty")
    if not _HEADER_VALUE.fullmatch(value):
        raise BadInput(f"the key in {variable} holds a line break or a character that is not ASCII")
    return value


def check_headers(headers: dict[str, str]) -> None:
    for name, text in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not _HEADER_VALUE.fullmatch(text):
            # What curl takes, "Authorization: Bearer KEY=", must not be repeated.
            shown = name if re.fullmatch(r"[\w-]+", name) else MASK
            raise BadInput(f"{shown!r} is not a header (write NAME=VALUE), or its value is not printable ASCII")
