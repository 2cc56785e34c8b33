"""Compare a session with its baseline, and log what changed and with which effect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, Difference, option_name
from swarmtui.analysis.compare.sessions import compare_pair, headline_row
from swarmtui.analysis.compare.verdicts import DETECT, VerdictWord
from swarmtui.experiments.store import add_change
from swarmtui.model.base import Stored
from swarmtui.model.session import Summary
from swarmtui.model.tuning import LoggedChange
from swarmtui.sessions.store import earlier_sessions, read_summary


class BaselineVerdict(Stored, frozen=True, kw_only=True):
    """The verdict on a session and its baseline; `needed` is that of `Verdict`."""

    sentence: str
    changes: tuple[Difference, ...]
    verdict: VerdictWord | Literal["refused"]
    change: float | None = None
    needed: int | None = None

    @property
    def change_text(self) -> str:
        return ", ".join(map(str, self.changes)) or "no known change"


def record_baseline_verdict(root: Path, baseline: str, session: Path, detect: float = DETECT) -> BaselineVerdict:
    """Compare a session with its baseline and append the verdict to the tuning log.

    `session` is a directory: it may be outside `root` if the disk there was full.
    """
    before, after = read_summary(root, baseline), read_summary(session.parent, session.name)
    found = compare_with_baseline(before, after, earlier_sessions(root, (before, after)), detect)
    change = LoggedChange(
        before=baseline,
        after=session.name,
        what=found.change_text,
        effect=found.sentence,
        verdict=found.verdict,
        change=found.change,
    )
    add_change(root, change)
    return found


def compare_with_baseline(
    before: Summary, after: Summary, history: Sequence[Summary] = (), detect: float = DETECT
) -> BaselineVerdict:
    """Compare the highest level that both sessions have."""
    pair = compare_pair(before, after, history=history, detect=detect)
    # The changed flags, or else everything that differs about the server and the plan.
    flags = [Difference(what=option_name(item.what), before=item.before, after=item.after) for item in pair.flags]
    changes = tuple(flags or [item for item in pair.differences if item.code not in CLIENT_DIFFERENCES])
    row = headline_row(pair)
    found = row.verdict if row and not pair.refused else None
    return BaselineVerdict(
        sentence=pair.sentence,
        changes=changes,
        verdict="refused" if pair.refused else found.word if found else "no verdict",
        change=found.change if found else None,
        needed=found.needed if found else None,
    )
