"""Work beside the event loop that is waited for only as long as somebody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Given = TypeVarTuple("Given")
Result = TypeVar("Result")


async def unless(event: asyncio.Event, work: Callable[[*Given], Result], *given: *Given) -> asyncio.Future[Result]:
    """Back when the work is done or the event comes. Its thread is its own: a process that ends leaves it behind."""
    working = asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), work, *given)
    # Of work that was not waited for nobody asks what it came to.
    working.add_done_callback(lambda future: future.cancelled() or future.exception())
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return working
