"""Find the earlier sessions of a configuration, which show how much sessions differ by chance."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.differences import is_same_configuration
from swarmtui.model.session import Summary


def find_repeats(a: Summary, b: Summary, history: Sequence[Summary]) -> tuple[Summary, ...]:
    """Return `a` and the earlier sessions of its configuration, none of them with more runs than `a` and `b`.

    Those after both do not count: a verdict stays what it was when they had ended.
    """
    runs, newest = min(a.session.plan.load.runs, b.session.plan.load.runs), max(a.session.id, b.session.id)
    others = (
        other
        for other in history
        if other.session.id not in (a.session.id, b.session.id)
        and other.session.id < newest
        and other.session.plan.load.runs <= runs
        and is_same_configuration(a, other)
    )
    return (a, *others)
