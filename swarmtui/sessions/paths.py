"""Where sessions and the configuration lie, and what sessions are called."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def sessions_root() -> Path:
    """The user's own data directory, or where XDG_DATA_HOME says."""
    from platformdirs import user_data_dir  # lazily: a command that reads no session need not wait for it

    return Path(user_data_dir("swarmtui")) / "sessions"


def config_path(directory: Path | None = None) -> Path:
    if directory is None:
        from platformdirs import user_config_dir

        directory = Path(user_config_dir("swarmtui"))
    return directory / "config.toml"


def new_id(now: datetime) -> str:
    """Sorts by time; in UTC, so that a change of the clocks changes no order."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def is_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None
