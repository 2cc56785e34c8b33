"""How busy the host was, from two readings of its counters."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.levels.figures import LevelReading, level_figures
from swarmtui.analysis.machine.host import busiest, host_use, host_use_within
from swarmtui.analysis.quality.facts import level_facts
from swarmtui.analysis.quality.judge import judge
from swarmtui.model.telemetry import HostLoad, HostUse, ProgramTimes
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage


def reading(at_ms: float, waiting_ms: float = 0.0, *, steal: int = 0, ticks: int = 0) -> HostLoad:
    return HostLoad(
        t_ns=BOOT_NS + round(at_ms * MS), pressure_us=round(1e3 * waiting_ms), steal_ticks=steal, ticks=ticks
    )


def test_shares_are_those_of_the_time_between_readings() -> None:
    use = host_use(reading(1000, 50), reading(3000, 850, steal=14, ticks=200))
    assert use == HostUse(pressure=0.4, steal=0.07)
    own = host_use(HostLoad(t_ns=0, waited_ns=0), HostLoad(t_ns=400, waited_ns=100))
    assert own == HostUse(waited=0.25)
    assert host_use(HostLoad(t_ns=0), HostLoad(t_ns=1)) is None
    assert host_use(reading(5), reading(5)) is None
    assert busiest([None, HostUse(pressure=0.1, steal=0.2), HostUse(pressure=0.3)]) == HostUse(pressure=0.3, steal=0.2)


def test_a_level_is_flagged_if_the_host_was_busy_during_it() -> None:
    readings = [reading(at, max(0.0, at - 2000)) for at in range(0, 4001, 500)]  # from two seconds on, some task waits
    short = host_use_within(readings, [(BOOT_NS + 2600 * MS, BOOT_NS + 2900 * MS)])
    assert short is not None and short.pressure == pytest.approx(1.0, abs=0.25)
    rare = [readings[0], readings[3], readings[-1]]  # at 0, 1500 and 4000 ms
    between = host_use_within(rare, [(BOOT_NS + 2600 * MS, BOOT_NS + 2900 * MS)])
    assert between is not None and between.pressure == pytest.approx(2000 / 2500)
    assert host_use_within(readings[:1], [(BOOT_NS, BOOT_NS + 300 * MS)]) is None
    records = [request(0, [100, 200], stage=1), request(2000, [2100, 2200], stage=2, c=2)]
    stages = [stage(1, c=1), stage(2, c=2, t_ns=BOOT_NS + 2000 * MS)]
    read = [LevelReading(found.t_ns, host=found) for found in readings]
    quiet, busy = level_figures(records, stages, [end(1, at=2000), end(2, at=4000)], readings=read)
    assert "host_pressure" not in {flag.code for flag in quiet.flags}
    assert "host_pressure" in {flag.code for flag in busy.flags}
    assert busy.host is not None and busy.host.pressure == pytest.approx(1.0)
    (line,) = [line for line in judge(level_facts([quiet, busy])) if line.code == "host_pressure"]
    assert line.state == "doubtful" and line.value.startswith("tasks waited for a CPU in 100 % of the time")


def scanned(at_ms: float, scan_ms: float, others_s: float, **by_name: float) -> HostLoad:
    """A reading with the programs as they were read at `scan_ms`."""
    programs = ProgramTimes(t_ns=BOOT_NS + round(scan_ms * MS), cpus=2, others_s=others_s, by_name=by_name)
    return msgspec.structs.replace(reading(at_ms, at_ms), programs=programs)


def test_other_programs_are_those_between_readings_of_all_processes() -> None:
    use = host_use(scanned(1000, 900, 5.0, git=4.0), scanned(3100, 2900, 6.0, git=4.05, python3=0.8))
    assert use is not None and use.others == pytest.approx(0.25)
    assert {program.name: program.cores for program in use.programs} == pytest.approx({"python3": 0.4})
    once = host_use(scanned(1000, 900, 5.0), scanned(1500, 900, 5.0))
    assert once is None, "whether another program was busy is not known yet"
    noise = host_use(scanned(1000, 900, 5.0), scanned(3100, 2900, 4.9))
    assert noise is not None and noise.others == 0.0
    rounded = host_use(scanned(1000, 900, 5.0), scanned(3100, 2900, 5.000000000000341))
    assert rounded is not None and rounded.others == 0.0, "less than the kernel counts is no use"


def test_a_level_is_judged_by_the_programs_that_ran_meanwhile() -> None:
    # All processes are read every two seconds; a program computes from the fourth second on.
    readings = []
    for at_ms in range(0, 10001, 500):
        scan_ms = at_ms // 2000 * 2000
        used_s = max(0.0, scan_ms / 1000 - 4.0)
        readings.append(scanned(at_ms, scan_ms, used_s, hog=used_s))
    quiet = host_use_within(readings, [(BOOT_NS + 500 * MS, BOOT_NS + 1500 * MS)])
    assert quiet is not None and quiet.others == 0.0 and quiet.programs == () and quiet.pressure == pytest.approx(1.0)
    busy = host_use_within(readings, [(BOOT_NS + 5000 * MS, BOOT_NS + 9000 * MS)])
    assert busy is not None and busy.others == pytest.approx(0.5)
    assert [program.name for program in busy.programs] == ["hog"]


def test_the_busiest_level_is_the_one_that_others_disturbed() -> None:
    alone, disturbed = HostUse(pressure=0.9, waited=0.9, others=0.0), HostUse(pressure=0.5, waited=0.1, others=0.3)
    idle = HostUse(pressure=0.1, waited=0.0, others=0.9, steal=0.2)
    assert busiest([alone, disturbed, idle]) == msgspec.structs.replace(disturbed, steal=0.2)
