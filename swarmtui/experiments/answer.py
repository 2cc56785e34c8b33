"""Did the change help? One line of two sessions, what differs between them, and what it would take to know more."""

from __future__ import annotations

from math import fsum, log, sqrt

from swarmtui.analysis.compare.differences import Difference, parse_flags
from swarmtui.analysis.compare.intervals import deviation
from swarmtui.analysis.compare.sessions import Pair, Row, compare_pair
from swarmtui.analysis.compare.verdicts import ENOUGH, detectable
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import Discovered
from swarmtui.model.tuning import Change, is_variable

NOTHING_KNOWN = "nothing that is known"
SAME = "the same flags"
UNKNOWN = "flags not known"
_MOST = 200


class Answer(Stored, frozen=True, kw_only=True):
    """`needed` is the number of runs of each that would settle the difference that was seen; null where it is settled,
    or where nobody can tell."""

    sentence: str
    what: str
    word: str
    change: float | None = None
    needed: int | None = None


def answer(before: Summary, after: Summary) -> Answer:
    """Of the highest level that both have."""
    pair = compare_pair(before, after)
    what = what_changed(pair)
    if pair.refused:
        return Answer(sentence=pair.sentence, what=what, word="refused")
    row = _row(pair)
    found = row.verdict if row else None
    if row is None or found is None or found.word != "undecided" or found.change is None:
        word = found.word if found else "undecided"
        return Answer(sentence=pair.sentence, what=what, word=word, change=found.change if found else None)
    needed = runs_to_settle(*(_rates(summary, row) for summary in (before, after)))
    return Answer(
        sentence=f"{pair.sentence}; {_need(needed, min(found.n_a, found.n_b))}",
        what=what,
        word="undecided",
        change=found.change,
        needed=needed,
    )


def runs_to_settle(a: list[float], b: list[float]) -> int | None:
    """Runs of each that find a difference as large as the one seen, four times in five; None without a spread."""
    if min(len(a), len(b)) < 2 or min(*a, *b) <= 0:
        return None
    x, y = [log(value) for value in a], [log(value) for value in b]
    spread = sqrt((deviation(x) ** 2 + deviation(y) ** 2) / 2)
    apart = abs(fsum(y) / len(y) - fsum(x) / len(x))
    return next((n for n in range(ENOUGH, _MOST + 1) if detectable(spread, n, n) <= apart), None)


def what_changed(pair: Pair) -> str:
    """Flags first; what else differs where no flag does."""
    flags = [Difference(what=_dashed(item.what), before=item.before, after=item.after) for item in pair.flags]
    told = flags or [item for item in pair.differences if not item.what.startswith("client")]
    return ", ".join(str(difference) for difference in told) or NOTHING_KNOWN


def change_of(found: Answer, before: str, after: str, created: str) -> Change:
    """The row of the log; its number is given there."""
    verdict = found.word if found.word in ("faster", "slower", "equivalent", "refused") else "undecided"
    return Change(
        number=0, created=created, before=before, after=after, what=found.what, gave=found.sentence,
        verdict=verdict, change=found.change,  # type: ignore[arg-type]
    )  # fmt: skip


def command_change(before: str, after: str) -> str:
    """What differs between two commands; of what are no commands, both."""
    x, y = parse_flags(before), parse_flags(after)
    names = [*x, *(name for name in y if name not in x)]
    told = [
        Difference(what=name or "command", before=x.get(name), after=y.get(name))
        for name in names
        if x.get(name) != y.get(name)
    ]
    return ", ".join(map(str, told)) or "nothing"


def server_change(before: Discovered, after: Discovered) -> str:
    """As `flag_change`; empty where nothing is different, or nobody can tell."""
    told = flag_change(before, after)
    return "" if told in (SAME, UNKNOWN) else told


def flag_change(before: Discovered, after: Discovered) -> str:
    """A server that came back: `--max-num-seqs 2 → 4, --kv-cache-dtype auto → fp8`."""
    others = [
        Difference(what=what, before=x or None, after=y or None)
        for what, x, y in (
            ("engine", before.engine, after.engine),
            ("version", before.version, after.version),
            ("model", ", ".join(before.models), ", ".join(after.models)),
        )
        if x and y and x != y
    ]
    if before.flags is None or after.flags is None:
        return ", ".join([UNKNOWN, *map(str, others)])
    names = [*before.flags, *(name for name in after.flags if name not in before.flags)]
    flags = [
        Difference(what=_dashed(name), before=_value(before.flags.get(name)), after=_value(after.flags.get(name)))
        for name in names
        if before.flags.get(name) != after.flags.get(name)
    ]
    return ", ".join(map(str, (*flags, *others))) or SAME


def _dashed(name: str) -> str:
    return name if is_variable(name) or name.startswith("-") else f"--{name}"


def _value(text: str | None) -> str | None:
    """A flag that stands alone has no value to show."""
    return "" if text == "true" else text


def _row(pair: Pair) -> Row | None:
    """The one that the pair's sentence is of."""
    rows = [row for row in pair.rows if row.leads]
    highest = max((row.at for row in rows), default=0)
    return next((row for row in rows if row.at == highest), None)


def _rates(summary: Summary, row: Row) -> list[float]:
    level: Level | None = next((level for level in summary.levels if level.key == (row.c, row.rate)), None)
    return list(level.lead_by_run) if level else []


def _need(needed: int | None, n: int) -> str:
    if n < 2:
        return f"{ENOUGH} runs of each at least are needed: one run has no spread"
    if needed is None:
        return f"more than {_MOST} runs of each would be needed to settle so small a difference"
    return f"{needed} runs of each would settle a difference of this size four times in five"
