"""The file in which a session is sent to someone else: its figures and its environment, without anything private."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored
from swarmtui.model.session import Summary

# The major version: within it, fields are only added.
SHARED_SCHEMA = 1
SHARED_SUFFIX = ".swarm.json.gz"
# The name of a shared file in the directory of sessions.
SHARED = f"shared{SHARED_SUFFIX}"


class SharedHead(Stored, frozen=True, kw_only=True):
    """What shared files of all versions have in common. `version` is that of the swarmtui that wrote it."""

    kind: Literal["swarmtui-session"]
    schema: int
    version: str = ""


class SharedFile(SharedHead, frozen=True, kw_only=True):
    summary: Summary
