"""What `doctor` and `discover` found, as lines to read."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from swarmtui.cli.render.page import columns
from swarmtui.model.telemetry import Discovered, Trust
from swarmtui.sessions.export.figures import NOTHING
from swarmtui.text import pad, plain, width

_SIGNS = {"ok": "✓", "doubtful": "?", "wrong": "✗"}
_SHOWN_FLAGS = 12


def check_line(line: Trust, names: int) -> str:
    """Sign, word, name and figure; what it means, or what to do, below."""
    head = f"{_SIGNS[line.state]} {line.state:<8}  {pad(plain(line.name), names, right=False)}  {plain(line.value)}"
    indent = " " * (14 + names)
    return "\n".join(
        [head, *textwrap.wrap(plain(line.sentence), columns(), initial_indent=indent, subsequent_indent=indent)]
    )


def names_width(names: Sequence[str]) -> int:
    return max(map(width, names), default=0)


def discovered_text(servers: Sequence[Discovered]) -> str:
    if not servers:
        return "no server found on this host; `swarmtui sim` starts a simulated one\n"
    return "\n\n".join(_server(server) for server in servers) + "\n"


def _server(server: Discovered) -> str:
    facts = [
        ("engine", " ".join(filter(None, (server.engine, server.version))) or "not known"),
        ("models", ", ".join(server.models) or NOTHING),
        ("context", NOTHING if server.context is None else f"{server.context:,} tokens"),
        ("seats", NOTHING if server.seats is None else str(server.seats)),
        ("process", NOTHING if server.pid is None else str(server.pid)),
        ("GPUs", ", ".join(server.gpus)),
        ("flags", "not known" if server.flags is None else _flags(server.flags) or "none"),
        ("problem", server.problem),
    ]
    lines = [plain(server.url) if server.reachable else f"{plain(server.url)} (does not answer)"]
    for name, value in facts:
        if value:
            lines += textwrap.wrap(plain(value), columns(), initial_indent=f"  {name:<8} ", subsequent_indent=" " * 11)
    return "\n".join(lines)


def _flags(flags: dict[str, str]) -> str:
    shown = [name if value == "true" else f"{name} {value}" for name, value in list(flags.items())[:_SHOWN_FLAGS]]
    more = len(flags) - len(shown)
    return ", ".join([*shown, f"and {more} more (--json)"] if more else shown)
