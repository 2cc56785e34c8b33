"""List the differences between sessions (flags, server, workload, client), refuse ratios of unlike ones, name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from swarmtui.analysis.machine.energy import count_names
from swarmtui.engines.command_line import shared_flags, split_words
from swarmtui.engines.registry import engine_named
from swarmtui.model.base import Stored
from swarmtui.model.findings import Finding, Findings
from swarmtui.model.load import Load, Sessions
from swarmtui.model.session import Level, Session, Summary
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.tuning import is_env_variable
from swarmtui.text import count_noun

# Final usage and usage in every chunk are the same count by the same server.
_SAME_SOURCE = {"usage_chunks": "usage"}
# Codes of differences that concern the load generator, not the server under test.
CLIENT_DIFFERENCES = ("client_version", "client_host")
# Codes of differences that are not known if one side is empty: a shared session does not tell them.
_LOCAL = ("endpoint", "client_host", "hosts")
# Flags that say where a server listens, or when the embedded simulator ends, not how it serves.
_PROCESS = ("--host", "--port", "--watch-stdin")


class Difference(Stored, frozen=True, kw_only=True):
    """One difference; `before` or `after` is null if there was no value."""

    what: str
    before: str | None
    after: str | None
    code: str = ""

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.what} {self.after}".rstrip()
        if self.after is None:
            return f"− {self.what} {self.before}".rstrip()
        return f"{self.what} {self.before} → {self.after}"


def parse_flags(text: str) -> dict[str, str]:
    """Parse `--max-num-seqs 4 --dtype=float16 --enforce-eager` by name, with dashes for underscores.

    Words before the first flag, such as the program, have an empty name.
    """
    flags: dict[str, str] = {}
    name = ""
    for word in split_words(text):
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


def describe_command_changes(before: str, after: str) -> str:
    """Describe the flags that differ between two commands."""
    return ", ".join(map(str, command_changes(before, after))) or "no change"


def command_changes(before: str, after: str) -> Sequence[Difference]:
    return _mapped(parse_flags(before), parse_flags(after), "flag", "command")


def describe_flag_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Describe the flags that differ, `--parallel 2 → 4`; empty if none does, or only those of the process."""
    return ", ".join(map(str, named_changes(before, after)))


def named_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    """List the flags that differ, named as on the command line."""
    changes = _flag_changes(before, after)
    return [Difference(what=option_name(found.what), before=found.before, after=found.after) for found in changes]


def _flag_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Difference, ...]:
    """List the flags that differ and say how the server serves."""
    changes = _mapped(dict(before), dict(after), "flag", "command")
    return tuple(found for found in changes if option_name(found.what) not in _PROCESS)


def flag_differences(a: Summary, b: Summary) -> tuple[Difference, ...]:
    """List flags that differ; none if the flags of one session are not known."""
    before, after = comparable_flags([known_flags(a), known_flags(b)], (a.session, b.session))
    return () if before is None or after is None else _flag_changes(before, after)


def changed_settings(a: Summary, b: Summary) -> tuple[Difference, ...]:
    """List flags that differ, without one that only keeps the context of a request as the slots change."""
    flags = flag_differences(a, b)
    if not b.servers or any(found.code == "context" for found in server_differences(a, b)):
        return flags
    keeps = engine_named(b.servers[0].engine).total_context_flag
    return tuple(flag for flag in flags if option_name(flag.what) != keeps) or flags


def options_text(flags: Sequence[Difference], side: Literal["before", "after"]) -> str:
    """Return the flags of a side as on the command line, `--parallel 2`; empty if one of them is not there."""
    values = [(option_name(flag.what), flag.before if side == "before" else flag.after) for flag in flags]
    return " ".join(f"{name} {value}" for name, value in values) if all(value for _, value in values) else ""


def side_text(changes: Sequence[Difference], side: Literal["before", "after"]) -> str:
    """Return all that differs about a side: `--parallel 2`, or `no --flash-attn` for a flag of the other one alone."""
    values = [(found.what, found.before if side == "before" else found.after) for found in changes]
    return ", ".join(f"no {name}" if value is None else f"{name} {value}".rstrip() for name, value in values)


def comparable_flags(
    known: Sequence[dict[str, str] | None], sessions: Iterable[Session]
) -> Sequence[dict[str, str] | None]:
    """Leave out what is not known of all: a shared session tells only flags that decide how fast a server is."""
    if not any(session.is_shared for session in sessions):
        return known
    return [None if flags is None else shared_flags(flags) for flags in known]


def known_flags(summary: Summary) -> dict[str, str] | None:
    """Return the flags that the user gave, else those found on the server's command line."""
    if summary.session.server_flags.strip():
        return parse_flags(summary.session.server_flags)
    found = [server.flags for server in summary.servers]
    return found[0] if found else None


def session_differences(a: Session, b: Session) -> tuple[Difference, ...]:
    """List everything but the flags that may explain a change of figures; simulators have a new port each time."""
    before, after = _described(a), _described(b)
    found = [
        Difference(code=code, what=what, before=x or None, after=y or None)
        for (code, what), x in before.items()
        if x != (y := after[code, what])
        and not (code == "endpoint" and a.simulated and b.simulated)
        and not (code in _LOCAL and not (x and y))
    ]
    return (*found, *_mapped(_tags(a), _tags(b), "tag", "tag"))


def _described(session: Session) -> dict[tuple[str, str], str]:
    """Return values by code and name."""
    endpoints, plan = session.endpoints, session.plan
    return {
        ("model", "model"): _each(endpoint.model for endpoint in endpoints),
        ("engine", "engine"): _each(endpoint.engine for endpoint in endpoints),
        ("api", "API"): _each(endpoint.dialect for endpoint in endpoints),
        ("endpoint", "endpoint"): _each(endpoint.url for endpoint in endpoints),
        ("replicas", "replicas"): str(len(endpoints)),
        ("workload", "workload"): f"{session.workload} {session.workload_digest[:12]}",
        ("token_cap", "token cap"): _text(plan.max_tokens),
        ("temperature", "temperature"): _text(plan.temperature),
        ("agent_header", "agent header"): plan.agent_header or "",
        ("too_long", "too long requests"): plan.too_long or "",
        ("requests", "requests per run"): str(plan.load.per_run),
        ("simulated", "simulated"): "yes" if session.simulated else "no",
        # Imported sessions name their tool.
        ("client_version", "client"): session.tags.get("imported") or f"swarmtui {session.client.version}",
        ("client_host", "client host"): session.client.host,
        ("hosts", "hosts of the workers"): ", ".join(host.name for host in session.hosts),
    }


def server_differences(a: Summary, b: Summary) -> tuple[Difference, ...]:
    """List differences in what the servers report about themselves, if both report it."""
    before, after = _reported(a), _reported(b)
    return tuple(
        Difference(code=code, what=what, before=x, after=y)
        for (code, what), x in before.items()
        if x and (y := after[code, what]) and x != y
    )


def _reported(summary: Summary) -> dict[tuple[str, str], str]:
    """Return values by code and name."""
    servers = summary.servers
    return {
        ("quantisation", "quantisation"): quantisation_of(summary),
        ("server_version", "server version"): _each(server.version for server in servers),
        ("context", "context"): _each(server.context for server in servers),
        ("slots", "total slots"): _each(server.slots for server in servers),
        ("gpus", "GPUs"): count_names(summary.gpus) or _each(len(server.gpus) for server in servers),
    }


def quantisation_of(summary: Summary) -> str:
    """Return the format of the weights, as far as the files of the model or the flags of the server tell it."""
    shapes = [summary.speed_of_light.model if summary.speed_of_light else None]
    shapes += [server.shape for server in summary.servers]
    flags = {name.lstrip("-"): value for name, value in (known_flags(summary) or {}).items()}
    known = (shape.quantisation for shape in shapes if shape and shape.quantisation)
    return next(known, flags.get("quantization", "") or flags.get("quantize", ""))


def server_changes(before: DiscoveredServer, after: DiscoveredServer) -> tuple[Difference, ...]:
    """List what differs between two states of one server; flags are compared only if both are known."""
    x, y = before.flags, after.flags
    flags = _flag_changes(x, y) if x is not None and y is not None else ()
    identity = (
        ("engine", before.engine, after.engine),
        ("version", before.version, after.version),
        ("model", ", ".join(before.models), ", ".join(after.models)),
    )
    old, new = (str(server.context) if server.context else "" for server in (before, after))
    context = Difference(code="context", what="context of a request", before=old, after=new)
    return (
        *(
            Difference(
                code=flag.code,
                what=option_name(flag.what),
                before=_flag_value(flag.before),
                after=_flag_value(flag.after),
            )
            for flag in flags
        ),
        *(
            Difference(code=what, what=what, before=old, after=new)
            for what, old, new in identity
            if old and new and old != new
        ),
        *([context] if old and new and old != new and not follows_flag(context, flags) else []),
    )


def describe_server_changes(before: DiscoveredServer, after: DiscoveredServer) -> str:
    """Render the changes of a restarted server: `--max-num-seqs 2 → 4, --kv-cache-dtype auto → fp8`."""
    return server_change_texts(before, after)[0]


def server_change_texts(before: DiscoveredServer, after: DiscoveredServer) -> tuple[str, ...]:
    """Render the changes from long to short; the last has the context, which no flag says, and counts the others."""
    changes = server_changes(before, after)
    others = ["flags not known"] if before.flags is None or after.flags is None else []
    others += [str(change) for change in changes if change.code != "context"]
    context = next((_tokens_text(change) for change in changes if change.code == "context"), "")
    if not context:
        return (", ".join(others) or "the same flags",)
    versions = [", ".join((*others, f"{name} {context}")) for name in ("context of a request", "context")]
    return (*versions, f"context {context} and {count_noun(len(others), 'other change')}") if others else (*versions,)


def _tokens_text(change: Difference) -> str:
    known = _numbers(change)
    return f"{known[0]:,} → {known[1]:,}" if known else f"{change.before} → {change.after}"


def option_name(name: str) -> str:
    """Write a flag as on the command line; environment variables keep their name."""
    return name if is_env_variable(name) or name.startswith("-") else f"--{name}"


def flags_text(flags: Mapping[str, str]) -> str:
    """Return all flags as on the command line: `--parallel 4 --flash-attn`."""
    return " ".join(" ".join(filter(None, (option_name(name), _flag_value(flags[name])))) for name in flags)


def _flag_value(text: str | None) -> str | None:
    """Show no value for a flag without an argument."""
    return "" if text == "true" else text


def comparison_refusals(a: Summary, b: Summary) -> Findings:
    """Return the reasons to refuse ratios between two sessions; empty if they are comparable."""
    found: list[Finding] = []

    def refuse(code: str, text: str) -> None:
        found.append(Finding(code=code, text=text))

    first, second = a.session, b.session
    if not first.workload_digest or not second.workload_digest:
        refuse("unknown_workload", "the workload of one session is not known")
    elif first.workload_digest != second.workload_digest:
        refuse("workload", f"different workloads: {_workload(first)} and {_workload(second)}")
    if first.plan.max_tokens != second.plan.max_tokens:
        caps = " and ".join(_text(s.plan.max_tokens) or "none" for s in (first, second))
        refuse("token_cap", f"different output caps: {caps}")
    rules = {_rules_of_play(session.plan.load) for session in (first, second)}
    if len(rules) > 1:
        refuse("rules_of_play", f"different rules of play: {' and '.join(sorted(rules, key=len, reverse=True))}")
    if first.simulated != second.simulated:
        refuse("simulated", "one of them was simulated")
    sources_a, sources_b = _sources(a.levels), _sources(b.levels)
    if sources_a and sources_b and sources_a != sources_b:
        refuse(
            "token_source",
            f"different token sources: {', '.join(sorted(sources_a))} and {', '.join(sorted(sources_b))}",
        )
    return tuple(found)


def _rules_of_play(load: Load) -> str:
    """Describe how recorded sessions were played."""
    if not isinstance(load, Sessions):
        return "other load"
    sessions = "" if load.session_limit is None else f", {load.session_limit} sessions"
    return f"pauses up to {load.max_gap_s:g} s, time scale {load.time_scale:g}{sessions}"


def is_same_configuration(a: Summary, b: Summary) -> bool:
    """Whether two sessions measured the same thing in the same way, as far as is known."""
    return (
        not comparison_refusals(a, b)
        and not flag_differences(a, b)
        and not server_differences(a, b)
        and a.session.plan.load.duration_s == b.session.plan.load.duration_s
        and all(found.code in CLIENT_DIFFERENCES for found in session_differences(a.session, b.session))
    )


def model_names(summary: Summary) -> str:
    return _each(endpoint.model for endpoint in summary.session.endpoints)


def session_names(summaries: Sequence[Summary]) -> list[str]:
    """Return a name for each session, unlike the others: its label or flags, with its id only if nothing else differs.

    A session without a label is named by the flags that differ between these sessions, where they are not known by what
    the servers report, else by its model or, if it is that of another session, too, its id.
    """
    sessions = [summary.session for summary in summaries]
    flags = varying_flags(comparable_flags([known_flags(summary) for summary in summaries], sessions))
    if not any(flags):
        reports = [_reported(summary) for summary in summaries]
        names_of = [what for what in reports[0] if len({report[what] for report in reports}) > 1] if reports else []
        flags = [", ".join(f"{what[1]} {report[what]}" for what in names_of if report[what]) for report in reports]
    models = [model_names(summary) for summary in summaries]
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
        name if names.count(name) < 2 else f"{name} ({session.id})" if session.label else session.id
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
            varying |= dict.fromkeys(name for name in changed if name not in _PROCESS)
    # A flag that is absent is named only if no other tells the sessions apart.
    absent = f"no {next(iter(varying))}" if varying else ""
    return [
        "" if flags is None else flags_text({name: flags[name] for name in varying if name in flags}) or absent
        for flags in named
    ]


def _tags(session: Session) -> dict[str, str]:
    return {f"tag {name}": value for name, value in session.tags.items()}


def _workload(session: Session) -> str:
    return f"{session.workload} ({session.workload_digest[:12]})"


def _sources(levels: Sequence[Level]) -> set[str]:
    known = [level.token_source for level in levels if level.token_source is not None]
    return {_SAME_SOURCE.get(source, source) for source in known}


def _mapped(before: dict[str, str], after: dict[str, str], code: str, nameless: str) -> tuple[Difference, ...]:
    names = [*before, *(name for name in after if name not in before)]
    return tuple(
        Difference(code=code, what=name or nameless, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _each(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values if value}))


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def context_change(differences: Sequence[Difference], flags: Sequence[Difference]) -> tuple[int, int] | None:
    """Return the tokens of a request before and after: slots may share what the server has; null if it is the same."""
    found = next((item for item in differences if item.code == "context"), None)
    known = _numbers(found) if found and not follows_flag(found, flags) else None
    return known if known and all(known) else None


def follows_flag(difference: Difference, flags: Sequence[Difference]) -> bool:
    """Whether the slots or the context changed by the same factor as a flag did, which says it: replicas share it."""
    value = _numbers(difference) if difference.code in ("slots", "context") else None
    return value is not None and any(
        found is not None and found[0] * value[1] == found[1] * value[0] for found in map(_numbers, flags)
    )


def _numbers(difference: Difference) -> tuple[int, int] | None:
    before, after = difference.before or "", difference.after or ""
    return (int(before), int(after)) if before.isdecimal() and after.isdecimal() else None
