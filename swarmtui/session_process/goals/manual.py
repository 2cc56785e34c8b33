"""Manual control: C streams stay busy until the user changes C or sets another goal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swarmtui.session_process.scheduler import Scheduler


async def hold(scheduler: Scheduler, c: int) -> None:
    while await scheduler.run_continuous(c, None):
        pass
