"""Figures of replayed traces: sessions per hour, prefix-cache hits, live contexts, TTFT by turn and prompt length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import fsum

from swarmtui.analysis.levels.runs import LevelRun, Span, in_flight_span
from swarmtui.analysis.levels.stats import median, ratio
from swarmtui.model.load import traits
from swarmtui.model.record import Record
from swarmtui.model.session import TraceFigures, TtftCell
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.trace import ReplayedRequest

# Prompts shorter than this are in one class.
_FIRST_CONTEXT = 4096
# A composed prompt may differ from the recorded one by this many tokens.
_MISCOUNTED = 4

ReplayedRecord = tuple[Record, ReplayedRequest]


def server_block_size(servers: Iterable[DiscoveredServer]) -> int | None:
    """Return the size of a block of the prefix cache; None if it is not known, or not that of all servers."""
    sizes = {server.block_size for server in servers}
    return sizes.pop() if len(sizes) == 1 else None


def reusable_tokens(replayed: ReplayedRequest, tokens_in: int | None, block_size: int | None) -> int:
    """Return how many recorded tokens of a prompt a cache can have: whole blocks of the server, without the last token.

    A server computes that token again, since its answer follows from it. It may count a recorded text differently.
    """
    recorded, known = replayed.input_tokens, replayed.reusable_tokens
    if block_size is None or not known:
        return known
    prompt = tokens_in or recorded
    blocks = min(int(known * prompt / recorded) + _MISCOUNTED, prompt - 1) // block_size
    return min(known, round(blocks * block_size * recorded / prompt))


def trace_figures(runs: Sequence[LevelRun], block_size: int | None, jobs: int) -> TraceFigures | None:
    """Return the figures of a level with this number of whole `jobs`, or None if it replayed no trace."""
    measured = list(_replays(record for run in runs for record in run.finished))
    if not measured:
        return None
    ok = [(record, replayed) for record, replayed in measured if record.ok]
    sessions = traits(runs[-1].load).replayed
    windows = [(run, window) for run in runs if (window := run.steady_window) is not None]
    span_s = sum(last - first for _, (first, last) in windows) / 1e9
    jobs_per_h = ratio(fsum(_shares(run, window) for run, window in windows) * 3600.0, span_s) if sessions else None
    recorded, reusable = sum(r.input_tokens for _, r in ok), sum(_reusable(ok, block_size))
    counted = [(record.tokens_in, replayed.input_tokens) for record, replayed in ok if record.tokens_in is not None]
    known = [record for record, _ in ok if record.tokens_in is not None and record.cached_tokens is not None]
    prompt, cached = sum(r.tokens_in or 0 for r in known), sum(r.cached_tokens or 0 for r in known)
    error = ratio(sum(count for count, _ in counted), sum(planned for _, planned in counted))
    contexts = [_context_tokens(run.records, window) for run, window in windows] if sessions else []
    return TraceFigures(
        jobs=jobs if sessions else 0,
        failed=len({r.play for record, r in measured if not record.ok}),
        jobs_per_h=jobs_per_h,
        jobs_per_h_user=ratio(jobs_per_h, runs[-1].c),
        recorded_tokens=recorded,
        reusable_tokens=reusable,
        block_size=block_size,
        cached_tokens=cached if known else None,
        fresh_tokens=prompt - cached if known else None,
        prompt_error=None if error is None else error - 1.0,
        max_hit_rate=ratio(reusable, recorded),
        hit_rate=ratio(cached, prompt) if known else None,
        hit_rate_by="answers" if known else None,
        live_context=ratio(fsum(contexts), span_s * 1e9) if contexts else None,
        ttft=ttft_cells(ok),
    )


def reuse(records: Iterable[Record], window: Span, block_size: int | None) -> tuple[int, int]:
    """Return the prompt tokens that were sent before, and all, of the requests whose prompts were read in a time.

    Requests that were cancelled later count too: the server has read their prompts.
    """
    read = [record for record in records if window[0] < (record.t_first_ns or 0) <= window[1]]
    found = [(record, record.replayed) for record in read if record.replayed is not None]
    return sum(_reusable(found, block_size)), sum(r.input_tokens for _, r in found)


def _reusable(replays: Iterable[ReplayedRecord], block_size: int | None) -> Iterator[int]:
    return (reusable_tokens(replayed, record.tokens_in, block_size) for record, replayed in replays)


def ttft_cells(replays: Iterable[ReplayedRecord]) -> tuple[TtftCell, ...]:
    cells: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for record, replayed in replays:
        if record.ttft_s is not None:
            cells[_class(replayed.turn + 1, 1), _class(replayed.input_tokens, _FIRST_CONTEXT)].append(record.ttft_s)
    return tuple(
        TtftCell(turn=turn, context=context, n=len(times), ttft_s=found)
        for (turn, context), times in sorted(cells.items())
        if (found := median(times)) is not None
    )


def _class(value: int, first: int) -> int:
    """Return the largest power of two times `first` up to the value; 0 below that."""
    return 0 if value < first else first << ((value // first).bit_length() - 1)


def _replays(records: Iterable[Record]) -> Iterator[ReplayedRecord]:
    for record in records:
        if record.replayed is not None and not record.cancelled:
            yield record, record.replayed


def _shares(run: LevelRun, window: Span) -> float:
    """Add up which share of its session each request is that was sent in the window, and answered."""
    return fsum(
        1.0 / replayed.requests
        for record, replayed in _replays(run.finished)
        if record.ok and record.t_sent_ns is not None and window[0] <= record.t_sent_ns < window[1]
    )


def _context_tokens(records: Iterable[Record], window: Span) -> float:
    """Return Σ tokens × nanoseconds within the window: an agent keeps its context until its next request."""
    agents: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for record in records:
        span = in_flight_span(record)
        if record.replayed is not None and span is not None:
            tokens = (record.tokens_in or record.replayed.input_tokens) + (record.tokens_out or 0)
            agents[record.replayed.play, record.replayed.subagent].append((*span, tokens))
    total = 0.0
    for spans in agents.values():
        spans.sort()
        held = [(start, following, tokens) for (start, _, tokens), (following, _, _) in pairwise(spans)]
        total += fsum(
            max(0, min(end, window[1]) - max(start, window[0])) * tokens for start, end, tokens in (*held, spans[-1])
        )
    return total
