"""Manual control: C streams stay busy until the user changes C or sets another goal."""

from __future__ import annotations

from swarmtui.session_process.stages import Stages


async def hold(stages: Stages, c: int) -> None:
    while await stages.run_continuous(c, None):
        pass
