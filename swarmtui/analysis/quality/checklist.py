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
    journal = _check(
        "journal", "journal", not damaged_lines, f"{damaged_lines} damaged lines", "0",
        "every figure is derived from the journal",
        "lines of the journal could not be read, so requests may be missing",
    )  # fmt: skip
    own = _session_checks(session, levels, warmup_requests, flags_found)
    return (*own, *_quality_checks(quality), journal)


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
            yield _check(rule.code, rule.name, ok, line.value, rule.limit, line.sentence, line.sentence)
        elif rule.unknown:
            # Nothing is known about a session without requests, not even what could be.
            state: CheckState = "not applicable" if rule.external and quality else "unknown"
            value = "not reported" if rule.external else "not measured"
            yield Check(
                code=rule.code, name=rule.name, state=state, value=value, limit=rule.limit, sentence=rule.unknown
            )


def _check(code: str, name: str, ok: bool | None, value: str, limit: str, good: str, bad: str, none: str = "") -> Check:
    """Return a check with the sentence for its state: good, bad, or that nothing was measured."""
    state: CheckState = "unknown" if ok is None else "ok" if ok else "not ok"
    sentence = {True: good, False: bad, None: none or "nothing was measured"}[ok]
    return Check(code=code, name=name, state=state, value=value, limit=limit, sentence=sentence)


def _session_checks(
    session: Session, levels: Sequence[Level], warmup_requests: int, flags_found: bool
) -> Iterator[Check]:
    yield _check(
        "warm_up", "warm-up", warmup_requests > 0, count_noun(warmup_requests, "request"), "at least 1, discarded",
        "the warm-up was done and discarded", "the first answers may include warm-up costs",
    )  # fmt: skip
    short = [level.name for level in levels if not level.complete]
    yield _check(
        "complete", "complete levels", not short if levels else None, f"{len(levels) - len(short)} of {len(levels)}",
        "all", "every level ended as planned", f"ended early: {', '.join(short)}",
    )  # fmt: skip
    failed, ok = sum(level.errors for level in levels), sum(level.ok for level in levels)
    yield _check(
        "errors", "errors", not failed if failed + ok else None, f"{failed} of {failed + ok}", "0",
        "no request failed", "requests failed; they are in no latency figure",
    )  # fmt: skip
    # Cap hits pass, because raw and clean figures are always shown side by side.
    hits = sum(level.cap_hits for level in levels)
    shown = "answers were cut at the token limit; raw and clean figures are shown" if hits else "no answer was cut"
    yield _check(
        "cap_hits", "cap hits", True if ok else None, f"{hits} of {ok}", "0, or raw and clean shown", shown, "", shown
    )
    yield _samples(levels)
    yield _spread(levels)
    known = bool(session.server_flags.strip()) or session.simulated or flags_found
    yield _check(
        "server_flags", "workload and flags", known,
        f"{session.workload} {session.workload_digest[:12]}, flags {'known' if known else 'not known'}",
        "same workload, flags known", "one workload, and the server's flags are known",
        "the run cannot be repeated without the server's flags; pass them with --server-flags",
    )  # fmt: skip


def _samples(levels: Sequence[Level]) -> Check:
    """Only closed loops have a half-width; the others are judged by their runs."""
    runs = min((level.runs for level in levels), default=0)
    widths = [(width, level.name) for level in levels if (width := level.half_width) is not None]
    widest, at = max(widths, default=(0.0, ""))
    bad = f"the steady rate of {at} is not known well enough; more requests narrow it"
    if runs < MIN_RUNS:
        bad = "too few runs to know the spread between them"
    ok = runs >= MIN_RUNS and widest <= HALF_WIDTH
    value = (f"± {short_percent(widest)} at {at}, " if at else "") + count_noun(runs, "run") if levels else "none"
    limit = f"half-width ≤ {short_percent(HALF_WIDTH)}, ≥ {MIN_RUNS} runs"
    return _check("samples", "samples", ok if levels else None, value, limit, "enough requests and runs", bad)


def _spread(levels: Sequence[Level]) -> Check:
    rows = [(coefficient_of_variation(level.headline_by_run), level.name) for level in levels]
    known = [(spread, name) for spread, name in rows if spread is not None]
    missing = ", ".join(name for spread, name in rows if spread is None)
    largest, at = max(known, default=(0.0, ""))
    ok = None if missing or not known else largest <= SPREAD
    value = "one run" if ok is None else f"{short_percent(largest)} at {at}"
    none = f"one run has no spread ({missing})" if missing else "no runs"
    limit, bad = f"CV ≤ {short_percent(SPREAD)}", f"the runs of {at} differ too much"
    return _check("spread", "spread", ok, value, limit, "the runs agree", bad, none)
