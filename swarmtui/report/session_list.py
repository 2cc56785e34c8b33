"""Build the list of saved sessions for terminal and app: one line per session or experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from swarmtui.analysis.capacity.words import agents_number
from swarmtui.analysis.levels.stats import count_known
from swarmtui.experiments.groups import ListRow, SessionGroup
from swarmtui.model.tuning import LoggedChange
from swarmtui.numbers import local_time, rate
from swarmtui.report.table import Block, Cell, Column, Sentence, Table, tabulate
from swarmtui.report.tuning import effect_text
from swarmtui.report.verdicts import verdict_cell
from swarmtui.sessions.index import SessionRow
from swarmtui.text import count_noun, sanitize

IN_TERMINAL = ("id", "state", "model", "workload", "name", "requests", "answer", "effect")
IN_APP = ("time", "name", "model", "workload", "answer", "effect", "state")
_FAILED = ("unreadable", "failed", "interrupted")
_KINDS = {"ab": "A/B test", "tune": "tune", "probe": "probes"}


def session_table(
    rows: Sequence[ListRow],
    changes: Mapping[str, str],
    shown: Sequence[str],
    time_form: str = "%Y-%m-%d %H:%M",
    effects: Mapping[str, LoggedChange] = MappingProxyType({}),
) -> Table:
    """Tabulate the columns `shown`; `changes` are the flags by which a session is named, besides its label.

    `effects` are the verdicts on sessions that were compared with a baseline: those of their end, which a comparison
    of the two repeats later, as it counts nothing that came after them.
    """

    def name(row: ListRow) -> str:
        if isinstance(row.entry, SessionGroup):
            return row.entry.name if "id" in shown else f"{kind(row, row.entry)}: {row.entry.name}"
        return row.entry.problem or session_caption(row.entry, changes.get(row.id, ""))

    def kind(row: ListRow, group: SessionGroup) -> str:
        return f"{'▾' if row.opened else '▸'} {_KINDS[group.kind]}"

    def first(row: ListRow, text: str) -> str:
        return f"└ {text}" if row.group else text

    def time(row: ListRow) -> str:
        return first(row, local_time(_newest(row).created, time_form) or row.id)

    def id(row: ListRow) -> str:
        if isinstance(row.entry, SessionGroup):
            return f"{kind(row, row.entry)}, {count_noun(len(row.entry.sessions), 'session')}"
        return first(row, row.id)

    def effect(row: ListRow) -> Cell:
        if (found := effects.get(row.id)) is None:
            return Cell("")
        return verdict_cell(found.verdict, f"{effect_text(found)} ".lstrip(), found.likely)

    # The app has no room for the whole id: there a change of a flag is not cut.
    least = 12 if "id" in shown else 16
    columns: dict[str, Column[ListRow]] = {
        "id": Column("id", "id", id, right=False, least=20),
        "time": Column("time", "time", time, right=False),
        "name": Column(
            "name", "label · flags that differ", name, right=False, least=least, short="label", keeps_end=True
        ),
        "model": Column("model", "model", lambda row: session_model(_newest(row)), right=False, least=8),
        "workload": Column("workload", "workload", lambda row: _newest(row).workload, right=False, least=8),
        "requests": Column("requests", "requests", lambda row: count_known(of.requests for of in _sessions(row))),
        # Only what an experiment found is longer.
        "answer": Column("answer", "answer", _answer, right=False, least=24),
        "effect": Column("effect", "against its baseline", effect, right=False, short="vs baseline"),
        "state": Column("state", "state", _state_cell, right=False),
    }
    drop = [id for id in ("requests", "workload", "model", "effect") if id in shown]
    table = tabulate("", rows, [columns[id] for id in shown], drop=drop)
    return table if any(row.id in effects for row in rows) else table.without(["effect"])


def session_list(
    rows: Sequence[ListRow], changes: Mapping[str, str], effects: Mapping[str, LoggedChange] = MappingProxyType({})
) -> list[Block]:
    """The list as the command line prints it, with what is wrong with single sessions."""
    if not rows:
        return [Sentence("no sessions yet")]
    common = common_values(rows) if len(rows) > 1 else {}
    table = session_table(rows, changes, [name for name in IN_TERMINAL if name not in common], effects=effects)
    named = " · ".join(filter(None, common.values()))
    table = table._replace(note=f"all of them: {named}" if named else "")
    found = (row.entry for row in rows if isinstance(row.entry, SessionRow))
    problems = [Sentence(f"{row.id}: {row.problem}", "alarm") for row in found if row.problem]
    closed = any(isinstance(row.entry, SessionGroup) for row in rows) and not any(row.group for row in rows)
    hint = [Sentence("▸: sessions of one experiment; --all lists them", "detail")] if closed else []
    return [table, *hint, *problems]


def common_values(rows: Sequence[ListRow]) -> dict[str, str]:
    """Return the columns in which the sessions do not differ, with their value; empty if there is none to name."""
    readable = [row for row in map(_newest, rows) if row.problem is None]
    values = {"model": {session_model(row) for row in readable}, "workload": {row.workload for row in readable}}
    same = {name: sanitize("".join(found)) for name, found in values.items() if len(found) < 2}
    states = {session_state(entry) for row in rows for entry in _sessions(row)}
    return same | ({"state": ""} if states <= {"done"} else {})


def session_caption(row: SessionRow, changes: str) -> str:
    """The name of a session: its label, and the flags that tell it apart."""
    label, changes = sanitize(row.label), sanitize(changes)
    return " · ".join(part for part in (label, changes if changes not in label else "") if part)


def session_model(row: SessionRow) -> str:
    return f"(sim) {row.model}" if row.simulated else row.model


def session_state(row: SessionRow) -> str:
    if row.shared:
        return "shared"
    return "unreadable" if row.problem is not None or row.state is None else row.state


def answer_text(row: SessionRow) -> str:
    """Return the capacity that was found, else the best of several levels; empty if nothing was measured."""
    if row.agents == 0 and row.agents_open:
        return "not known"
    if row.agents is not None:
        return f"{_agents(row, row.agents)} {'agent' if row.agents == 1 and not row.agents_open else 'agents'}"
    if not row.best_at:
        return ""
    best = f"{'? ' if row.doubtful else ''}{'best ' if len(row.levels) > 1 else ''}"
    return f"{best}{row.best_at}: {'~' if row.chunks_counted else ''}{rate(row.best_out_tps)} tok/s"


def _agents(row: SessionRow, agents: int) -> str:
    """`19`, `5+` or `? 16`"""
    parts = agents_number(agents, is_open=row.agents_open, doubtful=row.doubtful, wide=row.agents_range)
    return " ".join(filter(None, parts))


def full_answer(row: SessionRow) -> str:
    """`19 agents (19–31)`"""
    return f"{answer_text(row)}{_range(row)}"


def _range(row: SessionRow) -> str:
    """` (26–27)`: the ends of the range of the agents, unless they are the answer itself."""
    if row.agents is None or row.agents_range or not row.agents_low or row.agents_high is None:
        return ""
    return f" ({row.agents_low}–{row.agents_high})" if row.agents_low < row.agents_high else ""


def _newest(row: ListRow) -> SessionRow:
    return row.entry.newest if isinstance(row.entry, SessionGroup) else row.entry


def _sessions(row: ListRow) -> Sequence[SessionRow]:
    return row.entry.sessions if isinstance(row.entry, SessionGroup) else (row.entry,)


def _answer(row: ListRow) -> Cell | None:
    if isinstance(row.entry, SessionGroup):
        return Cell(row.entry.result) if row.entry.result else None
    agents, known = row.entry.agents, _range(row.entry)
    # With its range, a number needs no unit below the title, and hardly more room.
    text = f"{_agents(row.entry, agents)}{known}" if agents is not None and known else answer_text(row.entry)
    return Cell(text, "unknown" if row.entry.doubtful else None) if text else None


def _state_cell(row: ListRow) -> Cell:
    """The state of a session, or that of the first session of an experiment that has not ended well."""
    state = next((found for found in map(session_state, _sessions(row)) if found != "done"), "done")
    return Cell(state, "failed" if state in _FAILED else None)
