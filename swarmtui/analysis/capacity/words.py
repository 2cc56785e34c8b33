"""Say how certain a number of agents is: the same words wherever a capacity is shown."""

from __future__ import annotations


def agents_number(agents: int, *, is_open: bool, doubtful: bool) -> tuple[str, str]:
    """Return a number that stands alone, after the sign of doubt: `5`, `5+` with an open end, `?` and `5`.

    What an open end says is true of a server that looked slower than it is, unless not even one agent was kept.
    """
    if is_open:
        return ("", f"{agents}+") if agents else ("?", "")
    return "?" if doubtful else "", str(agents)


def range_text(agents: int, low: int | None, high: int | None) -> str:
    """Return what to add to a number of agents: ` (6–8)`, ` or more`, or nothing if both ends are it.

    A `low` of 0 is not decided, unless there are no agents; `high` is null if no level is shown to miss the SLO.
    """
    if low is None and high is None:
        return ""
    if agents and not low:
        if high is not None and high > agents:
            return f" (perhaps fewer, at most {high})"
        return ", perhaps fewer" if high is not None else ", perhaps fewer or more"
    if high is None:
        return " or more" if low == agents else f" ({low} or more)"
    return "" if low == high == agents else f" ({low}–{high})"


def range_clause(agents: int, low: int | None, high: int | None) -> str:
    """Return the same for the middle of a sentence: `, perhaps fewer,`"""
    text = range_text(agents, low, high)
    return f"{text}," if text.startswith(",") else text
