"""The figures of starts that a tuner compares, and the line of a log that says why one failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import exp, fsum, inf, log

import msgspec

from swarmtui.analysis.compare.sequential import Decision
from swarmtui.model.tuning import Objective, Start

# A capacity of no agent has no logarithm.
_NO_AGENT = 0.5
# How much of a change of the throughput counts between equal capacities.
_RATE_WEIGHT = 0.5

_OUT_OF_MEMORY = re.compile(r"out of memory|OOM|failed to allocate|cannot allocate|bad_alloc|insufficient memory", re.I)
UNKNOWN_FLAG = re.compile(
    r"unrecogni[sz]ed arguments?|unknown (argument|option|flag)|no such option|invalid argument", re.I
)
_ERROR_LINE = re.compile(r"error|exception|fail|cannot|unable|abort|invalid|unknown|unrecogni[sz]ed", re.I)


def objective_value(start: Start, objective: Objective) -> float | None:
    """Return what a start measured; null if it failed or has no such figure."""
    if start.state != "done":
        return None
    if objective == "agents":
        return None if start.agents is None else max(float(start.agents), _NO_AGENT)
    value: float | None = getattr(start, objective)
    return value or None


def compared_values(starts: Sequence[Start], objective: Objective) -> list[float]:
    """Return what an A/B test compares: numbers of agents are whole, so those of its starts are spread over one agent.

    If all starts of a side find the same number, its interval is still as wide as the rounding leaves it. They are
    ordered first, so that this never makes an interval narrower.
    """
    values = [objective_value(start, objective) or 1.0 for start in starts]
    if objective != "agents":
        return values
    parts = len(values)
    return [max(value + (i + 0.5) / parts - 0.5, _NO_AGENT / 2) for i, value in enumerate(sorted(values))]


def higher_is_better(objective: Objective) -> bool:
    return objective in ("out_tps", "agents")


def score(starts: Sequence[Start], objective: Objective) -> float:
    """Return the mean of the logs, higher is better; minus infinity if any of them failed or measured nothing."""
    values = [objective_value(start, objective) for start in starts]
    known = [log(value) for value in values if value is not None]
    if not values or len(known) < len(values):
        return -inf
    return (1.0 if higher_is_better(objective) else -1.0) * fsum(known) / len(known)


def search_score(starts: Sequence[Start], objective: Objective, base: Start | None) -> float:
    """Return the score by which a search goes on: between equal capacities the throughput decides.

    A capacity is a whole number, and after a short search a coarse one. Its throughput, compared with that of the
    command (`base`), moves the score within the range in which the capacity is known, by up to half of it.
    """
    value = score(starts, objective)
    if objective != "agents" or value == -inf or base is None or not base.out_tps:
        return value
    return value + fsum(_within_range(start, base.out_tps) for start in starts) / len(starts)


def _within_range(start: Start, base_tps: float) -> float:
    if not start.out_tps or not start.agents:
        return 0.0
    above = 2 * start.agents if start.agents_high is None else start.agents_high + 1
    half = max(0.0, log(above / start.agents)) / 2
    return min(max(_RATE_WEIGHT * log(start.out_tps / base_tps), -half), half)


def bounded_decision(decision: Decision, before: Sequence[Start], objective: Objective) -> Decision:
    """Return the verdict of an A/B test, which claims no more agents than a command whose capacity was not reached."""
    open_ended = [start.agents for start in before if start.agents and start.agents_high is None]
    if objective != "agents" or decision.word != "faster" or not open_ended:
        return decision
    why = f"the command may carry more than {max(open_ended)} agents: no level of its search surely missed the SLO"
    advice = "a longer --budget, or a stricter --slo, would tell"
    return msgspec.structs.replace(
        decision, word="not sure yet", sentence=f"not sure yet: {why}", detail=f"{why}; {advice}"
    )


def error_line(start: Start) -> str:
    """Return the line of the log that says why a start failed: the last that names an error, else the reason."""
    for pattern in (_OUT_OF_MEMORY, UNKNOWN_FLAG, _ERROR_LINE):
        named = [line for line in start.log if pattern.search(line)]
        if named:
            return named[-1].strip()
    return start.reason or (start.log[-1].strip() if start.log else "failed")


def mean_value(starts: Sequence[Start], objective: Objective) -> float | None:
    """Return the geometric mean of what starts measured; null without any."""
    known = [value for start in starts if (value := objective_value(start, objective)) is not None]
    return exp(fsum(map(log, known)) / len(known)) if known else None
