"""Reads config.toml, and takes from it what a run of a named endpoint needs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from swarmtui.model.config import Config, Known, parse_config
from swarmtui.model.endpoint import Secrets
from swarmtui.model.schema import BadInput
from swarmtui.sessions.paths import config_path


def read_config(directory: Path | None = None) -> Config:
    """Nothing there is fine; something wrong in it is said with file and key."""
    path = config_path(directory)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {error}", source=str(path)) from None
    config = parse_config(text, str(path))
    return msgspec.structs.replace(
        config, endpoints={name: _beside(known, path.parent) for name, known in config.endpoints.items()}
    )


def _beside(known: Known, directory: Path) -> Known:
    """A certificate file is meant relative to the config that names it."""
    if known.ca_file is None:
        return known
    return msgspec.structs.replace(known, ca_file=str(directory / Path(known.ca_file).expanduser()))


def check_ca_file(path: str, key: str) -> None:
    """Read once before anything is started: a worker could only fail on it."""
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        unreadable = not isinstance(error, ssl.SSLError)
        said = f"cannot be read: {error.strerror}" if unreadable else "holds no certificate in PEM form"
        raise BadInput(f"{path} {said}", key=key) from None


def read_secrets(variable: str | None, headers: dict[str, str], key: str) -> Secrets:
    """The key from the environment, and headers that are such; `key` is what people said the variable with."""
    value = None
    if variable is not None:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise BadInput("this variable is not set, or empty", key=f"{key} {variable}")
        if re.search(r"[\r\n\0]", value):
            raise BadInput("the key holds a line break", key=f"{key} {variable}")
    for name, text in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or re.search(r"[\r\n\0]", text):
            raise BadInput("not a header", key=f"--header {name}")
    return Secrets(api_key=value, headers=headers)
