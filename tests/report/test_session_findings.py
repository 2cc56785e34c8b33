"""The sentences on a result say first if the measurement is in doubt."""

from __future__ import annotations

import msgspec

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.quality.judge import judge
from swarmtui.model.telemetry import HostUse, QualityFacts
from swarmtui.report.session import finding_sentences
from tests.analysis.level_builders import level, summary

BUSY = judge(QualityFacts(host=HostUse(pressure=0.9)))


def test_a_busy_host_tempers_the_sweet_spot() -> None:
    levels = [level(1, tps=50), level(2, tps=90), level(4, tps=150)]
    calm = msgspec.structs.replace(summary(levels), scaling=scaling(levels, None))
    (sentence,) = [found.text for found in finding_sentences(calm)]
    (tempered,) = [found.text for found in finding_sentences(msgspec.structs.replace(calm, quality=BUSY))]
    assert tempered == f"not sure: the host was busy; {sentence}"


def test_a_single_level_says_so_too() -> None:
    alone = summary([level(4, tps=150)])
    assert finding_sentences(alone) == []
    (sentence,) = finding_sentences(msgspec.structs.replace(alone, quality=BUSY))
    assert sentence.text == "not sure: the host was busy; these figures may differ in another run"
