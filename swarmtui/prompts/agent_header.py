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
    """Return the lines of one request, each a system message of its own."""
    drawn = sha256(f"{seed}/{salt}/{number}/{turn}".encode()).hexdigest()
    time = _START + timedelta(seconds=int(drawn[16:24], 16) % _YEAR_S)
    lines = {
        "billing": f"x-anthropic-billing-header: cc_version=2.1.0.{drawn[:3]}; cc_entrypoint=cli; cch={drawn[3:8]};",
        "date": f"Session {drawn[8:16]}. Current date and time: {time:%Y-%m-%d %H:%M:%S} UTC.",
    }
    return tuple(Message(role="system", content=line) for name, line in lines.items() if kind in (name, "both"))
