"""Collect what two capacities say about the change between them: whether it is decided, and what would decide it."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.answer.commands import command_again
from swarmtui.analysis.compare.agents import SURE, AgentsChange
from swarmtui.analysis.compare.differences import (
    context_change,
    flag_differences,
    known_flags,
    option_name,
    options_text,
    parse_flags,
    server_differences,
)
from swarmtui.analysis.compare.sides import doubts_of
from swarmtui.engines.registry import engine_named
from swarmtui.model.base import Stored
from swarmtui.model.session import Summary

# Repeats of a search that may differ by this share of the number end near each other.
_NEAR = 0.25
# Lines of measurement quality that are about other programs on the host, or on its hypervisor.
_HOST = ("host_pressure", "host_steal")


class ServerChange(Stored, frozen=True, kw_only=True):
    """A change of a server, in the order of time, by the capacities before and after it.

    `before` and `after` are the flags that changed, empty if one is not known. `had` are the agents of both. A change
    that is `decided` is one, which may be `worse`; `same` is none, and one that is `alike` is of one agent at most,
    between searches that end near each other. With `no_limit` neither side has an upper end. `context` are the tokens
    of a request, if they fell. `answers_s` are the times of whole answers with as many agents, null if they are about
    the same. `repeat_before` and `repeat_after`: this one is in doubt, `busy`: as the host was. A search takes
    `search_s`; `command` repeats the newer one, `older_command` the older one, of an `embedded` simulator with its
    flags, and `longer_command` makes a surer one, empty if both are.
    """

    before: str = ""
    after: str = ""
    had: tuple[int, int]
    decided: bool = False
    worse: bool = False
    same: bool = False
    alike: bool = False
    no_limit: bool = False
    context: tuple[int, int] | None = None
    answers_s: tuple[float, float] | None = None
    repeat_before: bool = False
    repeat_after: bool = False
    busy: bool = False
    search_s: float | None = None
    embedded: bool = False
    command: str = ""
    older_command: str = ""
    longer_command: str = ""


class LeftOutFlag(Stored, frozen=True, kw_only=True):
    """A flag of the advice that the restarted server has not got, and the tokens of a request before and without it."""

    flag: str
    context: tuple[int, int]


def left_out_flag(older: Summary, newer: Summary) -> LeftOutFlag | None:
    """Return the flag that keeps the context of a request, if the newer server has only the slots that were advised.

    Null if the flags of the newer server are not known: then only their effect is.
    """
    slots = newer.scaling.reported_slots if newer.scaling else None
    flags = known_flags(newer)
    context = context_change(server_differences(older, newer), flag_differences(older, newer))
    if slots is None or flags is None or older.answer is None or context is None or context[1] >= context[0]:
        return None
    name = engine_named(newer.servers[0].engine).total_context_flag
    commands = [step.command for step in older.answer.next if step.forecast and step.forecast.slots == slots.total]
    advised = next((value for command in commands if (value := parse_flags(command).get(name))), None)
    given = {option_name(flag): value for flag, value in flags.items()}
    if not name or advised is None or given.get(name) == advised:
        return None
    return LeftOutFlag(flag=f"{name} {advised}", context=context)


def server_change(
    older: Summary, newer: Summary, found: AgentsChange, answers_s: tuple[float, float] | None, *, swapped: bool
) -> ServerChange:
    """Return the change from the older session to the newer one; if `swapped`, it was compared the other way round."""
    flags = flag_differences(older, newer)
    before, after = options_text(flags, "before"), options_text(flags, "after")
    if not (before and after):
        before, after = "", ""
    had = (found.before, found.after)
    if swapped:
        had = had[::-1]
    context = context_change(server_differences(older, newer), flags)
    unsure = any(one.answer is not None and (one.answer.confidence or 1.0) < SURE for one in (older, newer))
    return ServerChange(
        before=before,
        after=after,
        had=had,
        decided=found.word in ("more agents", "fewer agents"),
        worse=found.word == ("more agents" if swapped else "fewer agents"),
        same=found.word == "same",
        alike=abs(found.after - found.before) <= 1 and (found.repeats or 0) <= max(2.0, _NEAR * min(had)),
        no_limit=found.reason == "no_limit",
        context=context if context and context[1] < context[0] else None,
        answers_s=answers_s[::-1] if swapped and answers_s else answers_s,
        repeat_before=bool(doubts_of(older)),
        repeat_after=bool(doubts_of(newer)),
        busy=_was_busy((older, newer)),
        search_s=newer.session.plan.budget_s,
        embedded=any(endpoint.embedded for endpoint in older.session.endpoints),
        command=command_again(newer),
        older_command=command_again(older),
        longer_command=command_again(newer, longer=True) if unsure else "",
    )


def _was_busy(sides: Sequence[Summary]) -> bool:
    return any(line.state == "doubtful" and line.code in _HOST for side in sides for line in side.quality)
