"""Compare a session with its baseline: what changed, with which effect, and how many runs would decide it."""

from __future__ import annotations

from datetime import UTC, datetime
from math import fsum, log, sqrt
from pathlib import Path
from typing import Literal

from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, Difference, option_name, parse_flags
from swarmtui.analysis.compare.sessions import ComparisonRow, Pair, compare_pair
from swarmtui.analysis.compare.verdicts import MIN_RUNS, VerdictWord, detectable_change, standard_deviation
from swarmtui.experiments.tune_store import add_change
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Summary
from swarmtui.model.tuning import LoggedChange
from swarmtui.sessions.store import read_summary

_MAX_RUNS = 200


class BaselineVerdict(Stored, frozen=True, kw_only=True):
    """The verdict on a session and its baseline.

    `needed` is how many runs of each would decide a difference of the observed size; null if it is decided already,
    or if the runs are too few to estimate it.
    """

    sentence: str
    changes: tuple[Difference, ...]
    verdict: VerdictWord | Literal["refused"]
    change: float | None = None
    needed: int | None = None

    @property
    def change_text(self) -> str:
        return ", ".join(map(str, self.changes)) or "no known change"


def record_baseline_verdict(root: Path, baseline: str, session: Path) -> BaselineVerdict:
    """Compare a session with its baseline and append the verdict to the tuning log.

    `session` is a directory: it may be outside `root` if the disk there was full.
    """
    found = compare_with_baseline(read_summary(root, baseline), read_summary(session.parent, session.name))
    add_change(root, log_entry(found, baseline, session.name, datetime.now(UTC).isoformat(timespec="seconds")))
    return found


def compare_with_baseline(before: Summary, after: Summary) -> BaselineVerdict:
    """Compare the highest level that both sessions have."""
    pair = compare_pair(before, after)
    changes = _changes(pair)
    if pair.refused:
        return BaselineVerdict(sentence=pair.sentence, changes=changes, verdict="refused")
    row = _headline_row(pair)
    found = row.verdict if row else None
    if row is None or found is None:
        return BaselineVerdict(sentence=pair.sentence, changes=changes, verdict="undecided")
    if found.word != "undecided" or found.change is None:
        return BaselineVerdict(sentence=pair.sentence, changes=changes, verdict=found.word, change=found.change)
    needed = runs_needed_to_decide(*(_run_rates(summary, row) for summary in (before, after)))
    return BaselineVerdict(
        sentence=f"{pair.sentence}; {_describe_needed_runs(needed, min(found.n_a, found.n_b))}",
        changes=changes,
        verdict="undecided",
        change=found.change,
        needed=needed,
    )


def runs_needed_to_decide(a: list[float], b: list[float]) -> int | None:
    """Runs of each that detect a difference of the observed size with 80 % power; None without a spread."""
    if min(len(a), len(b)) < 2 or min(*a, *b) <= 0:
        return None
    x, y = [log(value) for value in a], [log(value) for value in b]
    spread = sqrt((standard_deviation(x) ** 2 + standard_deviation(y) ** 2) / 2)
    observed = abs(fsum(y) / len(y) - fsum(x) / len(x))
    return next((n for n in range(MIN_RUNS, _MAX_RUNS + 1) if detectable_change(spread, n, n) <= observed), None)


def _changes(pair: Pair) -> tuple[Difference, ...]:
    """The changed flags, or else everything that differs about the server and the plan."""
    flags = [Difference(what=option_name(item.what), before=item.before, after=item.after) for item in pair.flags]
    return tuple(flags or [item for item in pair.differences if item.code not in CLIENT_DIFFERENCES])


def log_entry(found: BaselineVerdict, before: str, after: str, created: str) -> LoggedChange:
    """A row for the tuning log; `add_change` numbers it."""
    return LoggedChange(
        number=0,
        created=created,
        before=before,
        after=after,
        what=found.change_text,
        effect=found.sentence,
        verdict=found.verdict,
        change=found.change,
    )


def describe_command_changes(before: str, after: str) -> str:
    """The flags that differ between two commands."""
    x, y = parse_flags(before), parse_flags(after)
    names = [*x, *(name for name in y if name not in x)]
    changes = [
        Difference(what=name or "command", before=x.get(name), after=y.get(name))
        for name in names
        if x.get(name) != y.get(name)
    ]
    return ", ".join(map(str, changes)) or "no change"


def _headline_row(pair: Pair) -> ComparisonRow | None:
    """The row that the pair's sentence is about."""
    rows = [row for row in pair.rows if row.leads]
    highest = max((row.offered_load for row in rows), default=0)
    return next((row for row in rows if row.offered_load == highest), None)


def _run_rates(summary: Summary, row: ComparisonRow) -> list[float]:
    level: Level | None = next((level for level in summary.levels if level.key == (row.c, row.rate)), None)
    return list(level.headline_by_run) if level else []


def _describe_needed_runs(needed: int | None, n: int) -> str:
    if n < 2:
        return f"at least {MIN_RUNS} runs of each are needed: one run has no spread"
    if needed is None:
        return f"more than {_MAX_RUNS} runs of each are needed to decide so small a difference"
    return f"{needed} runs of each would decide a difference of this size (80 % power)"
