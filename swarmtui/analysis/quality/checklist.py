"""The publication checklist of a session: the lines of measurement quality and the session's own conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from swarmtui.analysis.compare.verdicts import MIN_RUNS, coefficient_of_variation
from swarmtui.analysis.quality.judge import RULES
from swarmtui.model.findings import Check
from swarmtui.model.session import Level, Session
from swarmtui.model.telemetry import DiscoveredServer, QualityLine
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun

CheckState = Literal["ok", "not ok", "unknown", "not applicable"]

HALF_WIDTH = 0.03
SPREAD = 0.03


def publication_checklist(
    session: Session,
    levels: Sequence[Level],
    quality: Sequence[QualityLine],
    *,
    warmup_requests: int,
    damaged_lines: int = 0,
    servers: Sequence[DiscoveredServer] = (),
) -> tuple[Check, ...]:
    """Return the checks in reading order: the session's own conditions, then the lines of measurement quality."""
    flags_found = bool(servers) and all(server.flags is not None for server in servers)
    return (
        _warmup(warmup_requests),
        _complete(levels),
        _errors(levels),
        _cap_hits(levels),
        _samples(levels),
        _spread(levels),
        _server_flags(session, flags_found),
        *_quality_checks(quality),
        _journal(damaged_lines),
    )


def checklist_sentence(found: Sequence[Check]) -> str:
    failed = [check.name for check in found if check.state == "not ok"]
    unknown = [check.name for check in found if check.state == "unknown"]
    if not failed and not unknown:
        passed = sum(check.state == "ok" for check in found)
        rest = f", {len(found) - passed} not applicable" if passed < len(found) else ""
        return f"publication checklist: all {passed} checks pass{rest}"
    parts = [f"failed: {', '.join(failed)}"] if failed else []
    parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
    return f"publication checklist: {'; '.join(parts)}"


def _quality_checks(quality: Sequence[QualityLine]) -> Iterator[Check]:
    lines = {line.code: line for line in quality}
    for rule in RULES:
        line = lines.get(rule.code)
        if line is not None:
            ok = line.state in ("ok", "note") and not line.inexact
            yield _check(rule.code, rule.name, ok, line.value, rule.limit, line.sentence)
        elif rule.unknown:
            # Nothing is known about a session without requests, not even what could be.
            state: CheckState = "not applicable" if rule.external and quality else "unknown"
            value = "not reported" if rule.external else "not measured"
            yield Check(
                code=rule.code, name=rule.name, state=state, value=value, limit=rule.limit, sentence=rule.unknown
            )


def _check(code: str, name: str, ok: bool | None, value: str, limit: str, sentence: str) -> Check:
    state: CheckState = "unknown" if ok is None else "ok" if ok else "not ok"
    return Check(code=code, name=name, state=state, value=value, limit=limit, sentence=sentence)


def _warmup(requests: int) -> Check:
    sentence = "the warm-up was done and discarded" if requests else "the first answers may include warm-up costs"
    value = count_noun(requests, "request")
    return _check("warm_up", "warm-up", requests > 0, value, "at least 1, discarded", sentence)


def _complete(levels: Sequence[Level]) -> Check:
    short = [level.name for level in levels if not level.complete]
    sentence = f"ended early: {', '.join(short)}" if short else "every level ended as planned"
    ok = None if not levels else not short
    value = f"{len(levels) - len(short)} of {len(levels)}"
    return _check("complete", "complete levels", ok, value, "all", sentence if levels else "nothing was measured")


def _errors(levels: Sequence[Level]) -> Check:
    failed = sum(level.errors for level in levels)
    n = failed + sum(level.ok for level in levels)
    sentence = "no request failed" if not failed else "requests failed; they are in no latency figure"
    ok = None if not n else not failed
    return _check("errors", "errors", ok, f"{failed} of {n}", "0", sentence if n else "nothing was measured")


def _cap_hits(levels: Sequence[Level]) -> Check:
    """Cap hits pass, because raw and clean figures are always shown side by side."""
    hits, ok = sum(level.cap_hits for level in levels), sum(level.ok for level in levels)
    sentence = "no answer was cut"
    if hits:
        sentence = "answers were cut at the token limit; raw and clean figures are shown"
    return _check(
        "cap_hits", "cap hits", None if not ok else True, f"{hits} of {ok}", "0, or raw and clean shown", sentence
    )


def _samples(levels: Sequence[Level]) -> Check:
    """Only closed loops have a half-width; the others are judged by their runs."""
    limit = f"half-width ≤ {short_percent(HALF_WIDTH)}, ≥ {MIN_RUNS} runs"
    if not levels:
        return _check("samples", "samples", None, "none", limit, "nothing was measured")
    runs = min(level.runs for level in levels)
    widths = [(width, level.name) for level in levels if (width := level.half_width) is not None]
    widest, at = max(widths, default=(0.0, ""))
    sentence = "enough requests and runs"
    if runs < MIN_RUNS:
        sentence = "too few runs to know the spread between them"
    elif widest > HALF_WIDTH:
        sentence = f"the steady rate of {at} is not known well enough; more requests narrow it"
    ok = runs >= MIN_RUNS and widest <= HALF_WIDTH
    value = f"± {short_percent(widest)} at {at}, " if at else ""
    return _check("samples", "samples", ok, f"{value}{count_noun(runs, 'run')}", limit, sentence)


def _spread(levels: Sequence[Level]) -> Check:
    limit = f"CV ≤ {short_percent(SPREAD)}"
    rows = [(level.name, coefficient_of_variation(level.headline_by_run)) for level in levels]
    known = [(spread, name) for name, spread in rows if spread is not None]
    if not known or len(known) < len(rows):
        missing = ", ".join(name for name, spread in rows if spread is None)
        sentence = f"one run has no spread ({missing})" if missing else "no runs"
        return _check("spread", "spread", None, "one run", limit, sentence)
    largest, at = max(known)
    sentence = "the runs agree" if largest <= SPREAD else f"the runs of {at} differ too much"
    return _check("spread", "spread", largest <= SPREAD, f"{short_percent(largest)} at {at}", limit, sentence)


def _server_flags(session: Session, found: bool) -> Check:
    known = bool(session.server_flags.strip()) or session.simulated or found
    sentence = "one workload, and the server's flags are known"
    if not known:
        sentence = "the run cannot be repeated without the server's flags; pass them with --server-flags"
    value = f"{session.workload} {session.workload_digest[:12]}, flags {'known' if known else 'not known'}"
    return _check("server_flags", "workload and flags", known, value, "same workload, flags known", sentence)


def _journal(damaged: int) -> Check:
    sentence = "every figure is derived from the journal"
    if damaged:
        sentence = "lines of the journal could not be read, so requests may be missing"
    return _check("journal", "journal", not damaged, f"{damaged} damaged lines", "0", sentence)
