"""Joules are differences of counters, and nothing where a counter is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.analysis.machine.energy import energy_used
from swarmtui.model.telemetry import Gpu, Telemetry
from tests.analysis.record_builders import BOOT_NS, end, request, stretch

S = 1_000_000_000


def gpu(uuid: str = "a", **figures: Any) -> Gpu:
    return Gpu(uuid=uuid, index=0, name="card", **figures)


def steady(watts: float, seconds: int, uuid: str = "a", **figures: Any) -> list[Telemetry]:
    """A reading each second, of a card that draws so much all the time."""
    return [Telemetry(t_ns=t * S, gpus=(gpu(uuid, energy_j=1e6 + watts * t, **figures),)) for t in range(seconds + 1)]


def test_a_level_between_readings() -> None:
    found = energy_used(steady(300.0, 20), [(2 * S + S // 3, 12 * S + S // 3)], tokens_out=1500)
    assert found is not None
    assert found.joules == pytest.approx(3000.0)
    assert found.seconds == 10.0 and found.mean_w == pytest.approx(300.0)
    assert found.j_per_token == pytest.approx(2.0) and found.tokens_per_j == pytest.approx(0.5)


def test_runs_of_a_level_are_added_and_what_lies_between_is_not() -> None:
    found = energy_used(steady(100.0, 30), [(0, 5 * S), (20 * S, 25 * S)], tokens_out=None)
    assert found is not None and found.joules == pytest.approx(1000.0)
    assert found.j_per_token is None and found.tokens_per_j is None


def test_several_cards_are_added_and_some_can_be_chosen() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=100.0 * t), gpu("b", energy_j=7.0 * t))) for t in range(11)
    ]
    both, one = energy_used(readings, [(0, 10 * S)], 10), energy_used(readings, [(0, 10 * S)], 10, uuids=("a",))
    assert both is not None and both.joules == pytest.approx(1070.0)
    assert one is not None and one.joules == pytest.approx(1000.0)


def test_a_card_without_a_counter_leaves_no_joules_but_its_memory() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=100.0 * t, memory_used=5 + t), gpu("b", memory_used=1)))
        for t in range(11)
    ]
    found = energy_used(readings, [(2 * S, 8 * S)], 10)
    assert found is not None
    assert (found.joules, found.mean_w, found.j_per_token) == (None, None, None)
    assert found.peak_memory == 5 + 8 + 1


def test_readings_without_energy_between_are_passed_over() -> None:
    readings = steady(200.0, 10)
    between = [Telemetry(t_ns=t * S + S // 2, gpus=(gpu("a", memory_used=3),)) for t in range(10)]
    found = energy_used(sorted([*readings, *between], key=lambda r: r.t_ns), [(S, 9 * S)], 100)
    assert found is not None and found.joules == pytest.approx(1600.0) and found.peak_memory == 3


def test_a_driver_loaded_anew_leaves_no_joules() -> None:
    readings = steady(200.0, 10)
    readings[5:] = [Telemetry(t_ns=r.t_ns, gpus=(gpu("a", energy_j=float(i)),)) for i, r in enumerate(readings[5:])]
    found = energy_used(readings, [(S, 9 * S)], 100)
    assert found is not None and found.joules is None


def test_a_level_that_nobody_watched_has_no_joules() -> None:
    found = energy_used(steady(200.0, 10), [(8 * S, 20 * S)], 100)
    assert found is not None and found.joules is None
    assert energy_used([], [(0, S)], 100) is None
    assert energy_used([Telemetry(t_ns=0)], [(0, S)], 100) is None


def test_parts_of_a_card_are_not_counted_twice() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=10.0 * t, memory_used=8), gpu("m", part_of="a", memory_used=8)))
        for t in range(6)
    ]
    found = energy_used(readings, [(0, 5 * S)], 10)
    assert found is not None and found.joules == pytest.approx(50.0) and found.peak_memory == 8


def test_throttling_is_a_share_of_the_time_and_set_clocks_are_none() -> None:
    reasons = [(), ("power cap",), ("application clocks",), ("thermal", "power cap")]
    readings = [Telemetry(t_ns=t * S, gpus=(gpu("a", throttle=why),)) for t, why in enumerate(reasons)]
    found = energy_used(readings, [(0, 3 * S)], 10)
    assert found is not None
    assert (found.throttled, found.throttle) == (0.5, ("power cap", "thermal"))
    unknown = energy_used(steady(1.0, 3), [(0, 3 * S)], 10)
    assert unknown is not None and unknown.throttled is None


def test_a_simulated_card_stays_marked() -> None:
    found = energy_used(steady(100.0, 5, simulated=True), [(0, 5 * S)], 10)
    assert found is not None and found.simulated


@settings(max_examples=100, deadline=None)
@given(
    watts=st.floats(1.0, 1000.0),
    start=st.floats(0.0, 9.0),
    length=st.floats(0.5, 9.0),
)
def test_at_even_power_any_level_has_its_watts(watts: float, start: float, length: float) -> None:
    found = energy_used(steady(watts, 20), [(int(start * S), int((start + length) * S))], 1)
    assert found is not None and found.mean_w == pytest.approx(watts, rel=1e-4)


def test_a_level_that_was_only_passed_through_takes_no_joules() -> None:
    """C=1 for a moment on the way up, later for long: tokens and energy are those of the later visit."""
    passed = stretch(1, steered=True)
    stayed = stretch(2, steered=True, t_ns=BOOT_NS + 10 * S)
    asked = [
        request(100, [200, 300], stage=1, task=1),
        *(request(10_000 + 1000 * n, [10_500 + 1000 * n, 10_900 + 1000 * n], stage=2, task=2 + n) for n in range(4)),
    ]
    ends = [end(1, at=8_000, complete=False), end(2, at=14_000)]
    readings = [msgspec.structs.replace(seen, t_ns=BOOT_NS + seen.t_ns) for seen in steady(300.0, 20)]
    levels = level_figures(asked, [passed, stayed], ends)
    (found,) = add_machine_figures(levels, [passed, stayed], ends, readings, asked)
    assert found.tokens_out == 8
    assert found.energy is not None and found.energy.j_per_token == pytest.approx(4 * 300 / 8)


def test_tokens_of_a_run_that_was_cut_have_no_joules() -> None:
    """Nobody wrote down when it ended: a part of the energy over all of the tokens would be a wrong figure."""
    asked = [request(100, [200, 300], stage=1), request(10_100, [10_200, 10_300], stage=2, run=2)]
    starts = [stretch(1), stretch(2, run=2, t_ns=BOOT_NS + 10 * S)]
    readings = [msgspec.structs.replace(seen, t_ns=BOOT_NS + seen.t_ns) for seen in steady(300.0, 20)]
    for ends in ([end(1, at=8_000)], []):
        (found,) = add_machine_figures(level_figures(asked, starts, ends), starts, ends, readings, asked)
        assert found.energy is not None and found.energy.j_per_token is None
    assert found.energy is not None and found.energy.joules is None
