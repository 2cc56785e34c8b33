"""Read config.toml, and check the secrets and certificates that it names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from swarmtui.files import read_file
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config, is_variable_name, parse_config
from swarmtui.sessions.files import config_path

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
    if not value and not is_variable_name(variable):
        raise BadInput("expected the name of an environment variable that holds the key, not the key")
    if not value:
        raise BadInput(f"the variable {variable} is not set, or empty")
    if not _HEADER_VALUE.fullmatch(value):
        raise BadInput(f"the key in {variable} holds a line break or a character that is not ASCII")
    return value


def check_headers(headers: dict[str, str]) -> None:
    for name, text in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not _HEADER_VALUE.fullmatch(text):
            raise BadInput(f"{name!r} is not a header, or its value is not printable ASCII")
