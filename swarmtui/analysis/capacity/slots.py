"""Find how many requests a server runs at once, from its flags or as it reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.engines.base import Engine
from swarmtui.engines.registry import ENGINES
from swarmtui.model.findings import Slots
from swarmtui.model.session import Session
from swarmtui.model.telemetry import DiscoveredServer


def _spellings(engine: Engine, flag: str) -> str:
    """Return a pattern for a flag, its short forms, and underscores in place of dashes."""
    short = [f"-{short}" for short, name in engine.short_flags.items() if f"--{name}" == flag]
    return "|".join([flag[:2] + flag[2:].replace("-", "[-_]"), *short])


_SLOT_FLAGS = tuple((flag, _spellings(engine, flag)) for engine in ENGINES for flag in engine.slot_flags)


def slots_from_flags(flags: str, replicas: int = 1) -> Slots | None:
    """Return the slots that a flag sets; `replicas` are the endpoints, or the engines behind one."""
    for name, pattern in _SLOT_FLAGS:
        found = re.search(rf"(?:^|\s)(?:{pattern})[=\s]+(\d+)(?=\s|$)", flags)
        if found and int(found.group(1)) > 0:
            return Slots(per_replica=int(found.group(1)), replicas=max(1, replicas), reason=f"the server's {name}")
    return None


def server_slots(session: Session, servers: Sequence[DiscoveredServer]) -> Slots | None:
    """Return the slots as the servers report them, else from the flags that the user gave, which may be outdated."""
    known = [server.slots for server in servers]
    if not known or known[0] is None or any(slots != known[0] for slots in known):
        return slots_from_flags(session.server_flags, len(session.endpoints))
    inside = (servers[0].flags or {}).get("replicas", "")
    per_server = int(inside) if inside.isdigit() and int(inside) and known[0] % int(inside) == 0 else 1
    return Slots(per_replica=known[0] // per_server, replicas=len(known) * per_server, reason="as the server reports")
