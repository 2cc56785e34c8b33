"""How many requests a server runs at once, as its flags say."""

from __future__ import annotations

import re

from swarmtui.model.findings import Seats

_NAMES = (
    ("--max-num-seqs", r"--max[-_]num[-_]seqs"),
    ("--max-running-requests", r"--max[-_]running[-_]requests"),
    ("--parallel", r"--parallel|-np"),
    ("OLLAMA_NUM_PARALLEL", r"OLLAMA_NUM_PARALLEL"),
    ("--max-concurrent-requests", r"--max[-_]concurrent[-_]requests"),
)


def seats_from_flags(flags: str, replicas: int = 1) -> Seats | None:
    """`replicas` are the endpoints, or engines behind one; None where no flag names a number."""
    for name, pattern in _NAMES:
        found = re.search(rf"(?:^|\s)(?:{pattern})[=\s]+(\d+)(?=\s|$)", flags)
        if found and int(found.group(1)) > 0:
            return Seats(per_replica=int(found.group(1)), replicas=max(1, replicas), reason=f"the server's {name}")
    return None
