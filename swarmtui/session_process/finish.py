"""Finish a session: count missing tokens, write the end of the journal, and write the summary."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path

from swarmtui.analysis.quality.facts import usage_facts
from swarmtui.files import sessions_root
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended, Ending
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import End, TokenCount
from swarmtui.model.record import Record
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import QualityFacts
from swarmtui.processes.finished_counts import inherited, read_total
from swarmtui.session_process import preflight
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.steering import run_unless
from swarmtui.sessions.journal import has_journal
from swarmtui.sessions.store import saved_sentence, summary_error, summary_hint, write_summary

_RECOUNT_S, _CHECK_S = 60.0, 5.0
# An immediate stop waits this long for the summary, which is enough for a short session.
_SUMMARY_S = 0.3


async def recount(
    request: RunRequest, endpoint: Endpoint, uncounted: list[Record], journal: JournalQueue, stop_now: asyncio.Event
) -> None:
    """Write token counts for answers that the server did not count, as far as it gets before `stop_now` is set."""
    counts: list[TokenCount] = []
    await run_unless(stop_now, _count_tokens, request, endpoint, uncounted, counts)
    for count in tuple(counts):
        journal.write(count)


def _count_tokens(
    request: RunRequest,
    endpoint: Endpoint,
    uncounted: list[Record],
    counts: list[TokenCount],
    limit_s: float = _RECOUNT_S,
) -> None:
    deadline = time.monotonic() + limit_s
    with preflight.open_inspector(request, endpoint.url, endpoint.dialect) as inspector:
        for record in uncounted:
            tokens = inspector.count_tokens(endpoint.model, (record.reasoning or "") + (record.text or ""))
            if tokens is None or time.monotonic() > deadline:
                break
            counts.append(TokenCount(task=record.task, turn=record.turn, stage=record.stage, tokens_out=tokens))


async def check_usage(
    request: RunRequest, endpoint: Endpoint, sample: list[Record], stop_now: asyncio.Event
) -> QualityFacts:
    """Compare the server's usage of a few answers with its tokenizer, if it has one."""
    counts: list[TokenCount] = []
    await run_unless(stop_now, _count_tokens, request, endpoint, sample, counts, _CHECK_S)
    return usage_facts([(record, count.tokens_out) for record, count in zip(sample, tuple(counts), strict=False)])


async def save(
    journal: JournalQueue, root: str, ending: Ending, message: str, finished: int, exit_now: asyncio.Event
) -> tuple[Ended, Summary | None]:
    """Write the end and the summary. Once `exit_now` is set, an unfinished summary is left to be written later."""
    counted = read_total(inherited())
    journal.write(End(t_ns=time.perf_counter_ns(), state=ending, message=message))
    saved_elsewhere, unwritten = await asyncio.to_thread(_close_journal, journal, root)
    problem = unwritten

    async def saved() -> str:
        """Say how many requests are saved, which takes as long as reading the journal."""
        return await asyncio.to_thread(saved_sentence, journal.directory, finished, counted)

    saving = await run_unless(exit_now, write_summary, journal.directory)
    await asyncio.to_thread(wait, (saving,), _SUMMARY_S)
    summary = saving.result() if saving.done() and saving.exception() is None else None
    if not saving.done():
        ending = "stopped" if ending == "done" else ending
        message = f"{message or 'stopped immediately'}; {summary_hint(journal.directory)}"
    elif isinstance(error := saving.exception(), OSError | BadInput):
        problem = problem or await asyncio.to_thread(summary_error, journal.directory, error, finished, counted)
    elif error is not None:
        raise error
    elif ending == "interrupted":
        message = f"{message}; {await saved()}"
    directory = str(journal.directory) if await asyncio.to_thread(has_journal, journal.directory) else ""
    if unwritten and directory:
        problem = f"{problem}; {await saved()}"
    if problem:
        return Ended("unsaved", " · ".join(filter(None, [message, problem])), directory), summary
    return Ended(ending, " · ".join(filter(None, [message, saved_elsewhere])), directory), summary


def _close_journal(journal: JournalQueue, root: str) -> tuple[str, str]:
    """Return where the journal was saved instead, and what is not on disk in the end; empty if all is as it should."""
    saved_elsewhere = journal.save_elsewhere(_fallback_roots(root))
    problem = journal.final_problem()
    journal.close()
    return saved_elsewhere, problem


def _fallback_roots(first: str) -> Iterator[Path]:
    """Yield where to save a session whose own directory is full or was removed."""
    yield Path(first)
    yield sessions_root()
    with suppress(OSError):
        yield Path(tempfile.mkdtemp(prefix="swarmtui-sessions-"))
