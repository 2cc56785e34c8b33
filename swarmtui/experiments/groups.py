"""List the sessions of an experiment as one entry: an A/B test, a tune, or the probes of an endpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from swarmtui.analysis.compare.differences import varying_flags
from swarmtui.analysis.compare.verdicts import verdict_text
from swarmtui.experiments.ab import ab_result, changed_sides
from swarmtui.experiments.effects import summarise_tune
from swarmtui.experiments.store import experiment_directory, read_experiment
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.tuning import DEFAULT_NAME, Tune, TuneFile, configuration_text, format_flags
from swarmtui.numbers import rate, signed_percent
from swarmtui.sessions.index import SessionRow
from swarmtui.text import count_noun


class SessionGroup(Stored, frozen=True, kw_only=True):
    """The sessions of one experiment. `name` says what was changed, `result` what that did, as far as it is known."""

    id: str
    kind: Literal["ab", "tune", "probe"]
    name: str
    result: str
    sessions: tuple[SessionRow, ...]

    @property
    def newest(self) -> SessionRow:
        return max(self.sessions, key=lambda row: row.id)


class GroupText(NamedTuple):
    name: str
    result: str


Entry = SessionRow | SessionGroup


class ListRow(NamedTuple):
    """A line of the list of sessions; `group` is the id of the experiment that a session belongs to.

    `opened`: the sessions of this experiment follow.
    """

    entry: Entry
    group: str = ""
    opened: bool = False

    @property
    def id(self) -> str:
        return self.entry.id


def group_id(row: SessionRow) -> str:
    """Return what the sessions of an experiment have in common; empty for a session of its own."""
    series = row.series
    if series is None:
        return ""
    # The probes of an endpoint are one series for each model and workload.
    target = f" {row.model} {row.workload}" if series.kind == "probe" else ""
    return f"{series.kind}:{series.name}{target}"


def group_sessions(rows: Sequence[SessionRow], described: Mapping[str, GroupText]) -> list[Entry]:
    """Put the sessions of each experiment where the first of them is; the order is kept otherwise."""
    by_id: dict[str, list[SessionRow]] = {}
    for row in rows:
        by_id.setdefault(group_id(row) or row.id, []).append(row)
    entries: list[Entry] = []
    for key, members in by_id.items():
        series = members[0].series
        if series is None or (series.kind == "probe" and len(members) == 1):
            entries += members
        else:
            text = described.get(key, GroupText(series.name, ""))
            entries.append(SessionGroup(id=key, kind=series.kind, **text._asdict(), sessions=tuple(members)))
    return entries


def list_rows(entries: Sequence[Entry], opened: Collection[str] | None = ()) -> list[ListRow]:
    """Return a line for each entry, and below those that are opened their sessions; None opens all."""
    rows = []
    for entry in entries:
        if not isinstance(entry, SessionGroup):
            rows.append(ListRow(entry))
            continue
        is_open = opened is None or entry.id in opened
        rows.append(ListRow(entry, opened=is_open))
        rows += [ListRow(row, entry.id) for row in entry.sessions] if is_open else []
    return rows


def session_flags(rows: Sequence[SessionRow]) -> dict[str, str]:
    """Return for each session the server flags that others do not have: what changed between two is said of the pair.

    Only sessions of one model and address, or of one experiment, are compared: flags of another server did not change.
    """
    by_server: dict[tuple[str, str], list[SessionRow]] = {}
    for row in rows:
        address = "" if row.embedded else row.endpoint.partition(" ")[0]
        by_server.setdefault((row.model, group_id(row) if row.in_experiment else address), []).append(row)
    names: dict[str, str] = {}
    for group in by_server.values():
        texts = varying_flags([row.flags for row in group])
        names |= {row.id: text for row, text in zip(group, texts, strict=True) if text}
    return names


def describe_groups(root: Path, rows: Sequence[SessionRow]) -> dict[str, GroupText]:
    """Read what the experiments of these sessions are about, and what they have found."""
    newest = {key: row for row in sorted(rows, key=lambda row: row.id) if (key := group_id(row))}
    return {key: _describe(root, row) for key, row in newest.items()}


def _describe(root: Path, newest: SessionRow) -> GroupText:
    """Return the name and the result of an experiment; that of probes is the newest one."""
    series = newest.series
    assert series is not None
    if series.kind == "probe":
        return GroupText(series.name, f"{rate(newest.best_out_tps)} tok/s" if newest.best_out_tps is not None else "")
    try:
        found = read_experiment(experiment_directory(root, series.name), series.kind)
    except BadInput:
        found = None
    if found is None:
        return GroupText(series.name, "")
    if series.kind == "ab":
        decision = ab_result(found).decision
        word = verdict_text(decision.word if decision else None)
        change = f" {signed_percent(decision.change)}" if decision and decision.change is not None else ""
        return GroupText(changed_sides(found.definition), word + change)
    return GroupText(tune_name(found.definition), tune_result(found))


def tune_name(tune: TuneFile) -> str:
    """Name a tune by what it varies, `--parallel 2, 4, 8`, unless the user has named it, or it chooses the flags."""
    if tune.name != DEFAULT_NAME:
        return tune.name
    varied = (f"{flag} {', '.join(map(str, values))}" for flag, values in tune.grid.items() if len(values) > 1)
    return "; ".join(varied) or tune.name


def tune_result(tune: Tune) -> str:
    """Name the best configuration, or the one that leads so far; empty if none is finished."""
    summary = summarise_tune(tune.definition, tune.starts)
    best = next((row for row in summary.leaderboard if row.state == "done"), None)
    if best is None:
        return ""
    so_far = "" if summary.ranked else "so far "
    if tune.definition.objective == "agents" and best.agents is not None:
        return f"{so_far}{count_noun(best.agents, 'agent')} with {configuration_text(best.flags)}"
    return f"{so_far}{rate(best.out_tps)} tok/s at C={best.c} with {format_flags(best.flags)}"
