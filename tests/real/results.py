"""What the rounds gave: a line of a file for each, so that a later call can go on, and a table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

HEALTHY_SHARE = 0.95

Result = Literal["good", "differs", "host", "not caused"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One round. `host`: doubtful only since the host was busy; it does not count, nor does a fault not caused."""

    case: str
    engine: str
    healthy: bool
    seed: int
    result: Result
    session: str = ""
    exit_code: int | None = None
    codes: tuple[str, ...] = ()
    doubtful: dict[str, str] = {}
    flags: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return self.result in ("good", "differs")


class Log:
    """The rounds of a directory, in the order in which they were run."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        lines = path.read_bytes().splitlines() if resume and path.exists() else []
        self.outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        with self._path.open("ab") as out:
            out.write(msgspec.json.encode(outcome) + b"\n")

    def of(self, case: str, engine: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if (outcome.case, outcome.engine) == (case, engine)]

    def next_seed(self, first: int) -> int:
        return max((outcome.seed + 1 for outcome in self.outcomes), default=first)


class Row:
    """The rounds of a case on an engine, of which `times` should count."""

    def __init__(self, outcomes: Sequence[Outcome], times: int, *, healthy: bool) -> None:
        counted = [outcome for outcome in outcomes if outcome.counts]
        self.good, self.counted, self.repeated = (
            sum(outcome.result == "good" for outcome in counted),
            len(counted),
            len(outcomes) - len(counted),
        )
        self.missing = times - self.counted
        self._healthy = healthy
        self._codes = Counter(code for outcome in counted for code in outcome.codes)

    @property
    def differs(self) -> bool:
        """Whether too few of the counted rounds were as expected; too few rounds are not a difference."""
        return self.good < (HEALTHY_SHARE if self._healthy else 1.0) * self.counted

    def __str__(self) -> str:
        word = "without a doubtful line" if self._healthy else "named"
        parts = [f"{self.good} of {self.counted} {word}"]
        parts += [f"{self.repeated} repeated"] if self.repeated else []
        parts += [f"{self.missing} missing"] if self.missing > 0 else []
        parts += [", ".join(f"{code} {count}" for code, count in self._codes.most_common())] if self._codes else []
        return "; ".join(parts) + ("   DIFFERS" if self.differs else "")


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table of cases by engines: good of counted, and in brackets how many were repeated."""
    known = list(outcomes)
    engines = list(dict.fromkeys(outcome.engine for outcome in known))
    lines = [["", *engines]]
    for case in dict.fromkeys(outcome.case for outcome in known):
        cells = []
        for engine in engines:
            found = [outcome for outcome in known if (outcome.case, outcome.engine) == (case, engine)]
            row = Row(found, 0, healthy=any(outcome.healthy for outcome in found))
            repeated = f" (+{row.repeated})" if row.repeated else ""
            cells.append(f"{row.good} of {row.counted}{repeated}" if found else "–")
        lines.append([case, *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(engines) + 1)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
