"""Compute the figures of the steady window of closed loops: stream rate, first tokens, and the precision of the rate.

All requests that were in flight in the window count, whatever their phase, also those that were cancelled at its end.
"""

from __future__ import annotations

from cmath import rect
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import exp, fsum, hypot, pi, sqrt
from statistics import fmean
from typing import NamedTuple

from swarmtui.analysis.compare.distributions import t_quantile
from swarmtui.analysis.levels.runs import LevelRun, Span, steady, steady_parts
from swarmtui.analysis.levels.stats import Tally, count_gaps_us, percentile, ratio, standard_deviation
from swarmtui.model.load import ERROR_PAUSE_S
from swarmtui.model.record import Record

_MAX_BATCHES = 10
# The degrees of freedom with which the errors of single requests count beside those of batches. More would hide what
# changes the rate of all streams from one cycle to the next, fewer would leave two or three batches to chance.
_REQUESTS_DF = 4
# As many answers show how much lengths vary.
_MANY_ANSWERS = 20
# Requests queue if no more than this share of the streams receives tokens at the same time.
_QUEUED = 0.85
_CONFIDENCE = 0.975
# What no spread within a level shows: a level begins before its streams are as different as they are later. The shares
# of the rate were found by simulation (`python -m tests.bench.load_shape`): at least the first one, and the second
# times the squared CV of lengths.
_START_ERRORS = 0.001, 0.0035
# Fewer requests than this may all succeed although such a share fails; that many show one with 95 %.
_UNSEEN_SHARE, _ENOUGH_TO_SEE = 0.1, 29

# The spread of answers of equal length, and how close first tokens must come to be called synchronised: with equal
# lengths they are at 0.8 to 1 if streams started together, and up to 0.4 if they did not.
_EQUAL_LENGTHS, _IN_STEP = 0.05, 0.7


def first_tokens_in(run: LevelRun, endpoint: int | None = None) -> list[Record]:
    """Return the requests whose first token arrived in the window; failed ones are in no latency."""
    window = run.steady_window or (0, 0)
    return [
        record
        for record in run.records
        if not record.failed
        and endpoint in (None, record.endpoint)
        and window[0] < (record.t_first_ns or 0) <= window[1]
    ]


def are_synchronised(c: int, runs: Sequence[LevelRun]) -> bool:
    """Return whether streams with answers of equal length keep in step: their first tokens come together.

    The measure is the length of the mean of their phases within a cycle, as points on a circle: 0 if they are evenly
    spread, 1 if all first tokens come at the same time in each cycle.
    """
    lengths = [r.tokens_out for run in runs for r in run.finished if r.ok and r.tokens_out is not None]
    if c < 2 or len(lengths) < 2 or standard_deviation(lengths) > _EQUAL_LENGTHS * fmean(lengths):
        return False
    found = [phases for run in runs if (phases := _phases(c, run))]
    return bool(found) and fmean(abs(sum(phases)) / len(phases) for phases in found) > _IN_STEP


def _phases(c: int, run: LevelRun) -> list[complex]:
    """Return when first tokens arrived in the cycle of their stream, as points on a circle."""
    window, cycles = run.steady_window, (len(run.window_sends) - 1) / c
    if window is None or cycles < 1:
        return []
    cycle_ns = (window[1] - window[0]) / cycles
    return [rect(1.0, 2 * pi * ((r.t_first_ns or 0) - window[0]) / cycle_ns) for r in first_tokens_in(run)]


def window_stream_rate(runs: Sequence[LevelRun], *, endpoint: int | None = None, clean: bool = False) -> float | None:
    """Return the decode rate of a stream: Σ tokens after the first chunk / Σ time since it, both within the windows.

    `clean`: without cap hits, but for those of the pre-roll, whose answers may be cut on purpose.
    """
    parts = []
    for run in runs:
        ended = [record for record in run.records if record.ok]
        if ended and all(record.decoded is None for record in ended):
            continue  # those that were cancelled are probably as short
        window, per_chunk = run.steady_window or (0, 0), run.tokens_per_chunk
        parts += [
            part
            for record in run.records
            if endpoint in (None, record.endpoint) and not (clean and record.cap_hit and record.phase != "preroll")
            if (part := _decoded_within(record, window, per_chunk)) is not None
        ]
    return ratio(fsum(tokens for tokens, _ in parts), fsum(seconds for _, seconds in parts))


def _decoded_within(record: Record, window: Span, tokens_per_chunk: float) -> tuple[float, float] | None:
    """Return the tokens of a request after its first chunk that arrived in the window, and the time that they took.

    The length of a cancelled answer is not known: its chunks have as many tokens as those of the others.
    """
    first, last = record.t_first_ns, record.t_end_ns if record.ok else record.left_ns
    if record.failed or first is None or last is None or not record.chunks or (record.ok and record.decoded is None):
        return None
    start, end = max(first, window[0]), min(last, window[1])
    if end <= start:
        return None
    if record.ok and (first, last) == (start, end):
        return record.decoded
    before, arrived = record.chunks_until((start, end))
    chunks = arrived - max(1, before)
    if record.ok and record.decoded is not None and record.chunks > 1:
        tokens_per_chunk = record.decoded[0] / (record.chunks - 1)
    return chunks * tokens_per_chunk, (end - start) / 1e9


class Rejections(NamedTuple):
    """Return what requests that fail at once take from their stream: the variance of seconds, 0 s for all others.

    `unseen_s`: the seconds that each request would lose to failures, if too few were sent to see that none fails.
    """

    variance: float = 0.0
    unseen_s: float = 0.0


def steady_half_width(c: int, runs: Sequence[LevelRun], rejections: Rejections) -> float | None:
    """Return the half-width of the 95 % interval of the steady rate, in tok/s; None if it cannot be told.

    It joins two variances. That of batches of whole cycles, in which each of the C streams sends once: half a cycle
    would hold the prefill or the decode phase of streams that run in step. Where requests queue, it is the slots that
    send once per batch. And that of requests, the larger of two: of the cycles of single streams, as if each had a
    server of its own, and of the lengths of answers. All streams share the steps of a server, so that the mean length
    moves the rate of all of them, by the share of the time that does not grow with the length. A level of the default
    size has two or three batches, which tell little by themselves. `rejections` are those of all levels.
    If streams keep in step, no spread within a level tells how the next level would start.
    """
    if are_synchronised(c, runs):
        return None
    slots = max((run.streaming for run in runs), default=c)
    queued = 0 < slots <= _QUEUED * c
    batches = [part for run in runs for part in _batches(slots if queued else c, run)]
    answered = [cycle for run in runs for cycle in _cycles(run) if cycle[0]]
    rate, batch_error = _ratio_and_error(batches)
    if not rate or len(answered) < 2:
        return None
    lengths = [tokens for tokens, _ in answered]
    cv = standard_deviation(lengths) / fmean(lengths)
    top = _decode_rate(min(c, slots), runs, fmean(lengths))
    fixed_share = max(0.0, 1.0 - rate / top) if top else 0.0
    sent = sum(max(0, len(run.window_sends) - 1) for run in runs)
    # What ended tells the more of what did not, and of its own spread, the more alike lengths are: not by chance.
    alike = min(1.0, max(0.0, 1.5 - 2.0 * cv)) if len(answered) >= _MANY_ANSWERS else 0.0
    error = rate * fixed_share * cv / sqrt(len(answered) + alike * max(0, sent - len(answered)))
    requests_df = _REQUESTS_DF + alike * max(0, len(answered) - 1 - _REQUESTS_DF)
    if not queued:
        # The longest cycles are cut off by the end of the window, so that the others vary less than all would.
        error = max(error, c * (_ratio_and_error(answered)[1] or 0.0) * sqrt(sent / len(answered)))
    unseen = 0.0
    if c == 1:
        # Several streams use the time that one of them loses.
        per_second = rate / fsum(seconds for _, seconds in batches)
        error = hypot(error, per_second * sqrt(sent * rejections.variance))
        unseen = per_second * sent * rejections.unseen_s
    batches_df = len(batches) - 1
    weights = _REQUESTS_DF + batches_df
    variance = (_REQUESTS_DF * error**2 + batches_df * (batch_error or 0.0) ** 2) / weights
    # By Welch and Satterthwaite, as if both variances were equal.
    df = weights**2 / (_REQUESTS_DF**2 / requests_df + batches_df)
    least, by_spread = _START_ERRORS
    seen = hypot(t_quantile(_CONFIDENCE, df) * sqrt(variance), rate * least, rate * by_spread * cv * cv)
    # Failures that were not seen, and may not exist, never count for more than what was seen.
    return seen + min(seen, unseen)


def _ratio_and_error(parts: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Return Σ tokens / Σ seconds, and its standard error."""
    tokens, seconds = fsum(n for n, _ in parts), fsum(length for _, length in parts)
    if not seconds:
        return None, None
    rate, count = tokens / seconds, len(parts)
    squares = fsum((n - rate * length) ** 2 for n, length in parts)
    return rate, sqrt(count / (count - 1) * squares) / seconds if count > 1 else None


def _decode_rate(streams: int, runs: Sequence[LevelRun], length: float) -> float | None:
    """Return the rate of these `streams` while no prompt is read: a chunk of each in the median gap without one.

    In the time of one token, streams / length prompts begin: a share of e^−that of the gaps, the shortest, has none.
    """
    gaps = count_gaps_us(record for run in runs for record in run.records)
    if not gaps:
        return None
    gap_us = percentile(Tally(gaps), exp(-streams / length) / 2)
    return ratio(1e6 * streams * fmean(run.tokens_per_chunk for run in runs), gap_us)


def relative_half_width(c: int, runs: Sequence[LevelRun]) -> float | None:
    """Return the half-width of the steady rate as a share of it."""
    parts = [part for run in runs if (part := steady(run.records, c, run.steady_window)) is not None]
    rate = ratio(fsum(part.tokens for part in parts), fsum(part.seconds for part in parts))
    return ratio(steady_half_width(c, runs, find_rejections(runs)), rate)


def _batches(c: int, run: LevelRun) -> list[tuple[float, float]]:
    """Return the tokens and seconds of up to ten parts of the window, each of whole cycles."""
    sends = run.window_sends
    cycles = max(0, len(sends) - 1) // c
    count = min(_MAX_BATCHES, cycles)
    if not count:
        return []
    bounds = [sends[cycles * number // count * c] for number in range(count + 1)]
    return [(part.tokens, part.seconds) for part in steady_parts(run.records, bounds) if part.seconds > 0]


def find_rejections(runs: Sequence[LevelRun]) -> Rejections:
    """Find the requests that failed at once: sooner than any first token.

    The few requests of one level may see none of them fail, where others do: take the runs of all levels. Requests that
    fail later do so because of their level.
    """
    sent = [one for run in runs for one in _sent_by_streams(run)]
    fastest = min((ttft for record, *_ in sent if (ttft := record.ttft_s) is not None), default=0.0)
    lost = [
        (following_ns - sent_ns) / 1e9
        for record, sent_ns, following_ns in sent
        if record.failed and record.t_first_ns is None and record.age_s < fastest
    ]
    if not lost:
        few = len(sent) < _ENOUGH_TO_SEE
        return Rejections(unseen_s=ERROR_PAUSE_S * _UNSEEN_SHARE / (1.0 - _UNSEEN_SHARE) if few else 0.0)
    return Rejections(variance=fsum(seconds**2 for seconds in lost) / len(sent) - (fsum(lost) / len(sent)) ** 2)


def _cycles(run: LevelRun) -> list[tuple[int, float]]:
    """Return the tokens of each request that was sent in the window, and the time to the next send of its stream."""
    window = run.steady_window or (0, 0)
    return [
        (record.chunks if record.tokens_out is None else record.tokens_out, (following_ns - sent_ns) / 1e9)
        for record, sent_ns, following_ns in _sent_by_streams(run)
        if window[0] <= sent_ns and following_ns <= window[1]
    ]


def _sent_by_streams(run: LevelRun) -> list[tuple[Record, int, int]]:
    """Return each request, when it was sent, and when its stream sent the next one."""
    by_agent: defaultdict[int, list[tuple[int, Record]]] = defaultdict(list)
    for record in run.records:
        if record.t_sent_ns is not None:
            by_agent[record.agent].append((record.t_sent_ns, record))
    return [
        (record, sent_ns, following_ns)
        for sent in by_agent.values()
        for (sent_ns, record), (following_ns, _) in pairwise(sorted(sent, key=lambda pair: pair[0]))
    ]
