"""The levels as they are now: figured at once, or beside the load where a long journal has to be read for them."""

from __future__ import annotations

import asyncio

from swarmtui.session_process.live_levels import Measured
from swarmtui.session_process.live_state import Board


class Figures:
    """Shows them on the board. However often they are asked for, one reading at a time, and one more for the rest."""

    def __init__(self, measured: Measured, board: Board) -> None:
        self._measured, self._board = measured, board
        self._reading: asyncio.Task[None] | None = None
        self._asked = False

    def refresh(self) -> None:
        levels = self._measured.at_hand
        if levels is not None:
            self._board.levels = levels
            return
        self._asked = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while self._asked:
            self._asked = False
            self._board.levels = await self._measured.read() or self._board.levels

    async def settled(self, hurry: asyncio.Event) -> None:
        """Until they are of this moment; whoever is in a hurry does without those that are still read."""
        if self._reading is None:
            return
        waiting = asyncio.create_task(hurry.wait())
        await asyncio.wait((self._reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self._reading.cancel()
