"""What an automatic tune keeps of the session of a start."""

from __future__ import annotations

import msgspec

from swarmtui.experiments.auto import with_answers
from swarmtui.model.telemetry import QualityLine
from swarmtui.model.tuning import POWER, Flags, Start
from tests.analysis.level_builders import level, summary

CLOCKS = QualityLine(code="gpu_clocks", name="GPU clocks", state="doubtful", value="within 40 %", sentence="")
BUSY = QualityLine(code="host_pressure", name="host pressure", state="doubtful", value="60 %", sentence="")


def test_clocks_that_follow_the_power_limit_of_a_start_are_no_doubt_about_it() -> None:
    session = msgspec.structs.replace(summary([level(4)]), quality=(CLOCKS, BUSY))
    both: tuple[Flags, ...] = ({POWER: 350}, {"--slots": 8})
    limited, free = (with_answers(Start(flags=flags), session, None) for flags in both)
    assert limited.disturbances == ("the host was busy",)
    assert free.disturbances == ("the GPU clocks changed", "the host was busy")
    # What meets the command and a change by chance is no doubt about both.
    assert limited.doubts == () == free.doubts
