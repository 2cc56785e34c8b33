"""Compare a session with its baseline, and log what changed and with which effect."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, Difference, context_change, option_name
from swarmtui.analysis.compare.sessions import Pair, compare_pair, headline_row
from swarmtui.analysis.compare.verdicts import DETECT
from swarmtui.experiments.store import add_change
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.model.tuning import LoggedChange
from swarmtui.sessions.index import baseline_of, list_sessions, read_row
from swarmtui.sessions.store import baseline_id, earlier_sessions, read_summary


def baseline_verdict(root: Path, session: Path, baseline: str = "", detect: float = DETECT) -> LoggedChange:
    """Compare a saved session with its baseline, or with this one.

    `session` is a directory: it may be outside `root` if the disk there was full.
    """
    baseline = baseline or baseline_id(root, session)
    if not baseline:
        raise BadInput("its baseline is not saved any more", key=session.name)
    before, after = read_summary(root, baseline), read_summary(session.parent, session.name)
    found = compare_with_baseline(before, after, earlier_sessions(root, (before.session, after.session)), detect)
    return msgspec.structs.replace(found, before=baseline, after=session.name)


def record_baseline_verdict(root: Path, session: Path, baseline: str = "", detect: float = DETECT) -> LoggedChange:
    """Compare a session with its baseline and append the verdict to the tuning log."""
    found = baseline_verdict(root, session, baseline, detect)
    add_change(root, found)
    return found


def use_baseline(root: Path, directory: Path, summary: Summary) -> Summary:
    """Return a saved session with the advice that its baseline leaves."""
    return use_pair(summary, baseline_pair(root, directory, summary))


def baseline_pair(root: Path, directory: Path, summary: Summary) -> Pair | None:
    """Compare a saved session with its baseline; null if that cannot be read.

    Without a baseline that is the last session of the same endpoint, model and workload.
    """
    before = None
    with suppress(BadInput):
        if found := baseline_of(list_sessions(root), read_row(directory)):
            before = read_summary(root, found)
    if before is None:
        return None
    return compare_pair(before, summary, history=earlier_sessions(root, (before.session, summary.session)))


def use_pair(summary: Summary, pair: Pair | None) -> Summary:
    """Return the later session of a pair with the advice that both leave."""
    if pair is None or pair.refused or summary.answer is None:
        return summary
    return msgspec.structs.replace(summary, answer=msgspec.structs.replace(summary.answer, next=pair.next))


def compare_with_baseline(
    before: Summary, after: Summary, history: Sequence[Summary] = (), detect: float = DETECT
) -> LoggedChange:
    """Say what changed, and what it did to the capacity, or to the headline level, of the two sessions."""
    pair = compare_pair(before, after, history=history, detect=detect)
    row, agents = headline_row(pair), pair.agents
    found = row.verdict if row and not pair.refused and not agents else None
    return LoggedChange(
        before=before.session.id,
        after=after.session.id,
        what=describe_changes(pair),
        effect=explained(pair),
        verdict=pair.verdict,
        likely=pair.likely,
        change=found.change if found else None,
        agents=(agents.before, agents.after) if agents else None,
        agents_numbers=agents.numbers if agents else None,
        agents_detail=agents.detail if agents and agents.reason != "no_limit" else "",
    )


def explained(pair: Pair) -> str:
    """Return the sentence of a pair with the reason of its verdict; that nothing changed is said beside it."""
    agents = pair.agents
    if agents is None:
        return pair.sentence
    said = agents.claim(doubted=True) if agents.scatter else pair.sentence
    return "; ".join(filter(None, (said, agents.why)))


def describe_changes(pair: Pair, *, context: bool = True) -> str:
    """Name the changed flags, or else everything that differs about the server and the plan, and the context.

    The `context` is left out where it is said elsewhere.
    """
    flags = [Difference(what=option_name(item.what), before=item.before, after=item.after) for item in pair.flags]
    found = flags or [item for item in pair.differences if item.code not in CLIENT_DIFFERENCES]
    tokens = context_change(pair.differences, pair.flags) if flags and context else None
    also = ["context {:,} → {:,}".format(*tokens)] if tokens else []
    return ", ".join([*map(str, found), *also]) or "no known change"
