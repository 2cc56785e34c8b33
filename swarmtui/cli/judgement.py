"""What `--slo` and `--fail-if` say of a finished run: sentences for stderr, and whether something was missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.analysis.limits.fail_if import Limit
from swarmtui.analysis.limits.slo import parse_slo, slo_sentence
from swarmtui.model.findings import Goodput
from swarmtui.model.session import Level


def missed(
    levels: Sequence[Level], goodput: Sequence[Goodput], slo: str, limits: Sequence[Limit], say: Callable[[str], None]
) -> bool:
    """A limit that could not be judged is missed, and said."""
    found = False
    if slo:
        say(slo_sentence(goodput, parse_slo(slo)))
        found = not goodput or not all(level.kept for level in goodput)
    for limit in limits:
        judged = limit.judge(levels)
        if judged.missed:
            found = True
            could = "missed" if judged.true else "could not be judged"
            for why in judged.because or (limit.text,):
                say(f"{could}: {why}")
    return found
