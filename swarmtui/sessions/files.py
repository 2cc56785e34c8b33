"""Locate session and configuration files, and name sessions."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def sessions_root() -> Path:
    """Return the sessions directory in the user's data directory, or in XDG_DATA_HOME."""
    from platformdirs import user_data_dir  # lazily: not every command reads sessions

    return Path(user_data_dir("swarmtui")) / "sessions"


def config_path(directory: Path | None = None) -> Path:
    if directory is None:
        from platformdirs import user_config_dir

        directory = Path(user_config_dir("swarmtui"))
    return directory / "config.toml"


def new_session_id(now: datetime) -> str:
    """Return an id that sorts by time; in UTC, so daylight saving does not change the order."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def is_session_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None
