"""How many requests a server runs at once, as its flags say, or as it says itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from swarmtui.model.findings import Slots
from swarmtui.model.session import Session
from swarmtui.model.telemetry import DiscoveredServer

_NAMES = (
    ("--max-num-seqs", r"--max[-_]num[-_]seqs"),
    ("--max-running-requests", r"--max[-_]running[-_]requests"),
    ("--parallel", r"--parallel|-np"),
    ("OLLAMA_NUM_PARALLEL", r"OLLAMA_NUM_PARALLEL"),
    ("--max-concurrent-requests", r"--max[-_]concurrent[-_]requests"),
)


def slots_from_flags(flags: str, replicas: int = 1) -> Slots | None:
    """`replicas` are the endpoints, or engines behind one; None where no flag names a number."""
    for name, pattern in _NAMES:
        found = re.search(rf"(?:^|\s)(?:{pattern})[=\s]+(\d+)(?=\s|$)", flags)
        if found and int(found.group(1)) > 0:
            return Slots(per_replica=int(found.group(1)), replicas=max(1, replicas), reason=f"the server's {name}")
    return None


def server_slots(session: Session, servers: Sequence[DiscoveredServer]) -> Slots | None:
    """As the flags that people gave say, else as the servers themselves were found."""
    told = slots_from_flags(session.server_flags, len(session.endpoints))
    known = [server.slots for server in servers]
    if told is not None or not known or known[0] is None or any(seats != known[0] for seats in known):
        return told
    inside = (servers[0].flags or {}).get("replicas", "")
    each = int(inside) if inside.isdigit() and int(inside) and known[0] % int(inside) == 0 else 1
    return Slots(per_replica=known[0] // each, replicas=len(known) * each, reason="as the server said")
