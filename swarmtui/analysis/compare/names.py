"""Name sessions by what distinguishes them: their labels, the flags that vary between them, their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from swarmtui.analysis.compare.differences import known_flags, option_name
from swarmtui.model.session import Summary

# Flags that say where a server listens, not how it serves.
_ADDRESS = ("--host", "--port")


def session_names(summaries: Sequence[Summary]) -> list[str]:
    """Return a name for each session, unlike the others: its label or flags, with its id only if nothing else differs.

    A session without a label is named by the flags that differ between these sessions, else by its model.
    """
    sessions = [summary.session for summary in summaries]
    flags = varying_flags([known_flags(summary) for summary in summaries])
    models = [", ".join(sorted({endpoint.model for endpoint in session.endpoints})) for session in sessions]
    names = [
        session.label or text or model or "session"
        for session, text, model in zip(sessions, flags, models, strict=True)
    ]
    for more in (flags, models):
        by_name: dict[str, set[str]] = {}
        for name, text in zip(names, more, strict=True):
            by_name.setdefault(name, set()).add(text)
        names = [
            f"{name} · {text}" if text and len(by_name[name]) > 1 else name
            for name, text in zip(names, more, strict=True)
        ]
    return [
        f"{name} ({session.id})" if names.count(name) > 1 else name
        for name, session in zip(names, sessions, strict=True)
    ]


def varying_flags(known: Sequence[Mapping[str, str] | None]) -> list[str]:
    """Return the flags of each session that are not the same in all of them, those changed last first.

    The sessions are ordered by time, in either direction. The text is empty where flags are not known.
    """
    named = [None if flags is None else {option_name(name): flags[name] for name in flags if name} for flags in known]
    varying: dict[str, None] = {}
    for after, before in pairwise(flags for flags in named if flags is not None):
        if after != before:
            changed = (name for name in (*after, *before) if after.get(name) != before.get(name))
            varying |= dict.fromkeys(name for name in changed if name not in _ADDRESS)
    return ["" if flags is None else _text(flags, list(varying)) for flags in named]


def _text(flags: Mapping[str, str], names: Sequence[str]) -> str:
    """Write flags as on the command line; one that is absent is named only if no other tells the sessions apart."""
    present = [name if flags[name] in ("", "true") else f"{name} {flags[name]}" for name in names if name in flags]
    return " ".join(present) or (f"no {names[0]}" if names else "")
