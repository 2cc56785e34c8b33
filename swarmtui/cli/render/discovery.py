"""Render what `discover` and `doctor` found."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from swarmtui.cli.render.table import page_width
from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.numbers import MISSING
from swarmtui.text import sanitize

_SIGNS = {"ok": "✓", "note": "·", "doubtful": "?", "wrong": "✗"}
_NAME = len("client speed")
_SHOWN_FLAGS = 12


def check_line(line: QualityLine) -> str:
    """Sign, state, name and value; below it what that means, or what to do."""
    head = f"{_SIGNS[line.state]} {line.state:<8}  {line.name:<{_NAME}}  {sanitize(line.value)}"
    indent = " " * (14 + _NAME)
    return "\n".join(
        [head, *textwrap.wrap(sanitize(line.sentence), page_width(), initial_indent=indent, subsequent_indent=indent)]
    )


def discovery_text(servers: Sequence[DiscoveredServer]) -> str:
    if not servers:
        return "no inference server found on this host; `swarmtui sim` starts a simulated one\n"
    return "\n\n".join(_server(server) for server in servers) + "\n"


def _server(server: DiscoveredServer) -> str:
    facts = [
        ("engine", " ".join(filter(None, (server.engine, server.version))) or "unknown"),
        ("models", ", ".join(server.models) or MISSING),
        ("context", MISSING if server.context is None else f"{server.context:,} tokens"),
        ("slots", MISSING if server.slots is None else str(server.slots)),
        ("process", MISSING if server.pid is None else str(server.pid)),
        ("user", server.user),
        ("GPUs", ", ".join(server.gpus)),
        ("flags", "unknown" if server.flags is None else _flags(server.flags) or "none"),
        ("problem", server.problem),
    ]
    lines = [sanitize(server.url) if server.reachable else f"{sanitize(server.url)} (not responding)"]
    for name, value in facts:
        if value:
            lines += textwrap.wrap(
                sanitize(value), page_width(), initial_indent=f"  {name:<8} ", subsequent_indent=" " * 11
            )
    return "\n".join(lines)


def _flags(flags: dict[str, str]) -> str:
    shown = [name if value == "true" else f"{name} {value}" for name, value in list(flags.items())[:_SHOWN_FLAGS]]
    more = len(flags) - len(shown)
    return ", ".join([*shown, f"and {more} more (--json)"] if more else shown)
