"""Lines that real clients put in front of the system prompt and change with every request.

They are a known reason for prefix caches without hits. Some servers remove the billing line, which they recognise by
its name, and none a date.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

from swarmtui.model.plan import AgentHeader
from swarmtui.model.workload import Message

_START = datetime(2026, 1, 1, tzinfo=UTC)
_YEAR_S = 365 * 86_400


def header_messages(kind: AgentHeader, seed: int, salt: str, number: int, turn: int) -> tuple[Message, ...]:
    """Return the lines of one request, each a system message of its own.

    The suffix of the version and the session stay the same in all turns of a task; the checksum and the time do not.
    """
    task = sha256(f"{seed}/{salt}/{number}".encode()).hexdigest()
    request = sha256(f"{task}/{turn}".encode()).hexdigest()
    time = _START + timedelta(seconds=int(request[8:16], 16) % _YEAR_S)
    lines = {
        "billing": f"x-anthropic-billing-header: cc_version=2.1.0.{task[:3]}; cc_entrypoint=cli; cch={request[:5]};",
        "date": f"Session {task[8:16]}. Current date and time: {time:%Y-%m-%d %H:%M:%S} UTC.",
    }
    return tuple(Message(role="system", content=line) for name, line in lines.items() if kind in (name, "both"))
