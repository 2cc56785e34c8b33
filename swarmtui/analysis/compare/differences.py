"""What differs between two sessions: flags, server, workload, client; and what forbids a ratio between them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from swarmtui.analysis.machine.energy import count_names
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Session, Summary

# Final usage and usage in every chunk are the same count by the same server.
_SAME_SOURCE = {"usage_chunks": "usage"}


class Difference(Stored, frozen=True, kw_only=True):
    """`before` and `after` are null where there was nothing."""

    what: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.what} {self.after}".rstrip()
        if self.after is None:
            return f"− {self.what} {self.before}".rstrip()
        return f"{self.what} {self.before} → {self.after}"


def parse_flags(text: str) -> dict[str, str]:
    """`--max-num-seqs 4 --dtype=float16 --enforce-eager` by name; underscores and dashes mean the same.

    What stands before the first flag, such as the program, has the name of its place.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    flags: dict[str, str] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            name = re.sub(r"(?<=\w)_", "-", name)
            flags[name] = value if equals else ""
            name = "" if equals else name
        elif re.match(r"[A-Z][A-Z0-9_]+=", word) and not name:
            variable, _, value = word.partition("=")
            flags[variable] = value
        elif name:
            flags[name] = f"{flags[name]} {word}".strip()
        else:
            flags[""] = f"{flags.get('', '')} {word}".strip()
    return flags


def flag_differences(a: Summary, b: Summary) -> tuple[Difference, ...]:
    """Nothing where the flags of one are not known: that they are all new would be a guess."""
    before, after = known_flags(a), known_flags(b)
    return () if before is None or after is None else _mapped(before, after, "command")


def known_flags(summary: Summary) -> dict[str, str] | None:
    """As people gave them, else as the servers were found to be started."""
    if summary.session.server_flags.strip():
        return parse_flags(summary.session.server_flags)
    found = [server.flags for server in summary.servers]
    return found[0] if found else None


def session_differences(a: Session, b: Session) -> tuple[Difference, ...]:
    """Everything but the flags that may explain a change of figures; a simulator has a new port each time."""
    pairs = (
        ("model", _of(a.endpoints, "model"), _of(b.endpoints, "model")),
        ("engine", _of(a.endpoints, "engine"), _of(b.endpoints, "engine")),
        ("endpoint", _of(a.endpoints, "url"), _of(b.endpoints, "url")),
        ("replicas", str(len(a.endpoints)), str(len(b.endpoints))),
        ("workload", f"{a.workload} {a.workload_digest[:12]}", f"{b.workload} {b.workload_digest[:12]}"),
        ("token cap", _text(a.plan.max_tokens), _text(b.plan.max_tokens)),
        ("temperature", _text(a.plan.temperature), _text(b.plan.temperature)),
        ("requests a run", str(a.plan.requests), str(b.plan.requests)),
        ("simulated", _yes(a.simulated), _yes(b.simulated)),
        ("client", f"swarmtui {a.client.version}", f"swarmtui {b.client.version}"),
        ("client host", a.client.host, b.client.host),
    )
    found = [
        Difference(what=what, before=x or None, after=y or None)
        for what, x, y in pairs
        if x != y and not (what == "endpoint" and a.simulated and b.simulated)
    ]
    return (*found, *_mapped(_tags(a), _tags(b), "tag"))


def server_differences(a: Summary, b: Summary) -> tuple[Difference, ...]:
    """What the servers said of themselves; where one did not say, nothing differs."""
    before, after = _said_by(a), _said_by(b)
    return tuple(
        Difference(what=what, before=before[what], after=after[what])
        for what in before
        if before[what] and after[what] and before[what] != after[what]
    )


def _said_by(summary: Summary) -> dict[str, str]:
    servers = summary.servers

    def each(values: Iterable[object]) -> str:
        return ", ".join(sorted({str(value) for value in values if value}))

    return {
        "server version": each(server.version for server in servers),
        "context": each(server.context for server in servers),
        "seats in all": each(server.slots for server in servers),
        "GPUs": count_names(summary.gpus) or each(len(server.gpus) for server in servers),
    }


def comparison_refusals(a: Summary, b: Summary) -> tuple[str, ...]:
    """Why no ratio may be made between two sessions; empty where nothing speaks against it."""
    found = []
    first, second = a.session, b.session
    if not first.workload_digest or not second.workload_digest:
        found.append("the workload of one is not known")
    elif first.workload_digest != second.workload_digest:
        found.append(f"different workloads: {_workload(first)} and {_workload(second)}")
    if first.plan.max_tokens != second.plan.max_tokens:
        caps = " and ".join(_text(s.plan.max_tokens) or "none" for s in (first, second))
        found.append(f"different output caps: {caps}")
    mine, other = _sources(a.levels), _sources(b.levels)
    if mine and other and mine != other:
        found.append(f"different token sources: {', '.join(sorted(mine))} and {', '.join(sorted(other))}")
    return tuple(found)


def _tags(session: Session) -> dict[str, str]:
    return {f"tag {name}": value for name, value in session.tags.items()}


def _workload(session: Session) -> str:
    return f"{session.workload} ({session.workload_digest[:12]})"


def _sources(levels: Sequence[Level]) -> set[str]:
    known = [level.token_source for level in levels if level.token_source is not None]
    return {_SAME_SOURCE.get(source, source) for source in known}


def _mapped(before: dict[str, str], after: dict[str, str], nameless: str) -> tuple[Difference, ...]:
    names = [*before, *(name for name in after if name not in before)]
    return tuple(
        Difference(what=name or nameless, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _of(endpoints: Sequence[Endpoint], field: str) -> str:
    return ", ".join(sorted({str(getattr(endpoint, field)) for endpoint in endpoints}))


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
