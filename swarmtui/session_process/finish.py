"""The end of a session: tokens that are counted late, the last line of its journal, and the summary made of it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from swarmtui.model.client_protocol import Ending
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.record import Record
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.model.session import End, TokenCount
from swarmtui.session_process import opening
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.session_process.live_state import Board
from swarmtui.session_process.patience import unless
from swarmtui.sessions.paths import sessions_root
from swarmtui.sessions.store import figures_later, unsummed, write_summary

# A short session is summed up in so little time, also where somebody wants to leave at once.
_MOMENT_S = 0.3


async def recount(
    order: Order, endpoint: Endpoint, uncounted: list[Record], board: Board, ledger: Ledger, hurry: asyncio.Event
) -> None:
    """What was counted by then, where somebody is in a hurry: nobody waits for a count that is under way."""
    board.note = f"the server counts the tokens of {len(uncounted)} answers"
    counts: list[TokenCount] = []
    await unless(hurry, opening.recount, order, endpoint, uncounted, counts)
    board.note = ""
    for count in tuple(counts):
        ledger.write(count)


async def save(
    ledger: Ledger, root: str, ending: Ending, message: str, leaving: asyncio.Event
) -> tuple[Ending, str, str]:
    """How it ended after all, in which words, and where it lies; `leaving`: nobody waits for the summary."""
    ledger.write(End(t_ns=time.perf_counter_ns(), state=ending, message=message))
    saved_elsewhere = ledger.rescue(_other_places(root))
    problem = ledger.loss
    ledger.close()
    saving = await unless(leaving, write_summary, ledger.directory)
    await asyncio.wait((saving,), timeout=_MOMENT_S)
    if not saving.done():
        ending = "stopped" if ending == "done" else ending
        message = f"{message or 'stopped at once'}; {figures_later(ledger.directory)}"
    elif isinstance(error := saving.exception(), OSError | BadInput):
        problem = problem or unsummed(ledger.directory, error)
    elif error is not None:
        raise error
    if problem:
        return "failed", " · ".join(filter(None, [message, problem])), str(ledger.directory)
    return ending, " · ".join(filter(None, [message, saved_elsewhere])), str(ledger.directory)


def _other_places(first: str) -> Iterator[Path]:
    """Where a session may be saved that its own place does not take any more."""
    yield Path(first)
    yield sessions_root()
    yield Path(tempfile.mkdtemp(prefix="swarmtui-sessions-"))
