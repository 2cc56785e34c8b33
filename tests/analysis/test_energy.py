"""Joules are differences of counters, and null where a reading is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.analysis.machine.energy import ServerGpus, energy_used, server_gpus, session_gpus, used_gpus
from swarmtui.model.telemetry import DiscoveredServer, Gpu, Telemetry
from tests.analysis.record_builders import BOOT_NS, end, request, stage

S = 1_000_000_000


def gpu(uuid: str = "a", **figures: Any) -> Gpu:
    return Gpu(uuid=uuid, index=0, name="card", **figures)


def steady(watts: float, seconds: int, uuid: str = "a", **figures: Any) -> list[Telemetry]:
    """Build one reading per second of a GPU with constant power."""
    return [Telemetry(t_ns=t * S, gpus=(gpu(uuid, energy_j=1e6 + watts * t, **figures),)) for t in range(seconds + 1)]


def test_energy_is_interpolated_between_readings() -> None:
    found = energy_used(steady(300.0, 20), [(2 * S + S // 3, 12 * S + S // 3)], tokens_out=1500)
    assert found is not None
    assert found.joules == pytest.approx(3000.0)
    assert found.seconds == 10.0 and found.mean_w == pytest.approx(300.0)
    assert found.j_per_token == pytest.approx(2.0) and found.tokens_per_j == pytest.approx(0.5)


def test_utilisation_is_the_mean_of_the_readings_in_a_span() -> None:
    readings = [Telemetry(t_ns=t * S, gpus=(gpu(utilisation=busy),)) for t, busy in enumerate((0.0, 0.4, 0.6, 0.0))]
    found = energy_used(readings, [(S, 2 * S)], None)
    assert found is not None and found.utilisation == pytest.approx(0.5)


def test_memory_of_a_span_without_a_reading_is_that_of_the_readings_around_it() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu(energy_j=9.0 * t, memory_used=used),))
        for t, used in enumerate((9, 2, 3, 4, 5, 6, 6, 9))
    ]
    short, none = (energy_used(readings, [(start, start + S // 2)], 1) for start in (4 * S + S // 4, 20 * S))
    assert short is not None and short.peak_memory == 6
    assert short.joules is None, "the power of a second is not that of half of it"
    assert none is not None and none.peak_memory is None


def test_joules_of_short_spans_are_null() -> None:
    """The GPU is busy from 2.5 to 4.3 s, and idle before and after it: readings in it do not show its power."""
    counts = [50.0 * t + 250.0 * max(0.0, min(t, 4.3) - 2.5) for t in range(8)]
    readings = [Telemetry(t_ns=t * S, gpus=(gpu(energy_j=count),)) for t, count in enumerate(counts)]
    short = energy_used(readings, [(5 * S // 2, 43 * S // 10)], 100)
    assert short is not None and short.joules is None
    exact = energy_used(readings, [(2 * S, 5 * S)], 100)
    assert exact is not None and exact.joules == pytest.approx(150.0 + 450.0)


def test_energy_of_runs_is_summed_without_the_time_between() -> None:
    found = energy_used(steady(100.0, 30), [(0, 5 * S), (20 * S, 25 * S)], tokens_out=None)
    assert found is not None and found.joules == pytest.approx(1000.0)
    assert found.j_per_token is None and found.tokens_per_j is None


def test_energy_of_all_or_selected_gpus() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=100.0 * t), gpu("b", energy_j=7.0 * t))) for t in range(11)
    ]
    only_a = ServerGpus(frozenset("a"), known=True)
    both, one = energy_used(readings, [(0, 10 * S)], 10), energy_used(readings, [(0, 10 * S)], 10, only_a)
    assert both is not None and both.joules == pytest.approx(1070.0)
    assert one is not None and one.joules == pytest.approx(1000.0)
    assert (both.all_gpus, one.all_gpus) == (True, False)


@pytest.mark.parametrize(
    ("named", "used"),
    [([("a",)], {"a"}), ([("m",)], {"b"}), ([("a",), ("b",)], {"a", "b"}), ([("a",), ()], None), ([], None)],
    ids=["one", "part of a GPU", "two servers", "one not known", "none"],
)
def test_gpus_of_the_servers(named: list[tuple[str, ...]], used: set[str] | None) -> None:
    readings = [Telemetry(t_ns=0, gpus=(gpu("a"), gpu("b"), gpu("m", part_of="b")))]
    servers = [DiscoveredServer(url="x", gpus=uuids) for uuids in named]
    whole = used or {"a", "b"}
    assert server_gpus(readings, servers) == ServerGpus(frozenset(whole), used is not None)
    assert {gpu.uuid for gpu in used_gpus(readings[0], servers)} == whole, "of the live figures"


def test_idle_gpus_of_the_host_do_not_count() -> None:
    """Memory shows which GPUs hold a model, also in a container, where the processes on them are not visible."""
    idle, model = 5 << 20, 70 << 30
    readings = [
        Telemetry(
            t_ns=t * S,
            gpus=(gpu("a", memory_used=used, energy_j=100.0 * t), gpu("b", memory_used=idle, energy_j=60.0 * t)),
        )
        for t, used in enumerate((idle, model, idle))
    ]
    servers = [DiscoveredServer(url="x")]
    assert server_gpus(readings, servers) == ServerGpus(frozenset("a"), False), "a server that was started, and ended"
    assert [gpu.uuid for gpu in used_gpus(readings[1], servers)] == ["a"]
    assert len(session_gpus(readings, servers)) == 1
    found = energy_used(readings, [(0, 2 * S)], 10, server_gpus(readings, servers))
    assert found is not None and found.joules == pytest.approx(200.0) and not found.all_gpus
    on_cpu = server_gpus(readings[:1], servers)
    assert energy_used(readings[:1], [(0, 2 * S)], 10, on_cpu) is None


def test_level_counts_the_energy_of_its_server() -> None:
    readings = [
        Telemetry(t_ns=BOOT_NS + t * S, gpus=(gpu("a", energy_j=100.0 * t), gpu("b", energy_j=900.0 * t)))
        for t in range(11)
    ]
    requests = [request(0, [5_000, 10_000])]
    starts, ends = [stage()], [end(at=10_000)]
    levels = level_figures(requests, starts, ends)
    for uuids, joules in ((("a",), 1_000.0), ((), 10_000.0)):
        servers = [DiscoveredServer(url="x", gpus=uuids)]
        (found,) = add_machine_figures(levels, starts, ends, readings, requests, servers)
        assert found.energy is not None and found.energy.joules == pytest.approx(joules)
        assert found.energy.all_gpus is not bool(uuids)


def test_energy_of_a_closed_loop_is_that_of_its_steady_window() -> None:
    """It begins with the first measured request and ends with the first filler."""
    readings = [msgspec.structs.replace(sample, t_ns=BOOT_NS + sample.t_ns) for sample in steady(300.0, 20)]
    phases = ("preroll", "level", "level", "level", "filler")
    requests = [
        request(4000 * n, [4000 * n + 1000 * k for k in range(1, 5)], task=n, phase=phase)
        for n, phase in enumerate(phases)
    ]
    starts, ends = [stage()], [end(at=20_000)]
    (found,) = add_machine_figures(level_figures(requests, starts, ends), starts, ends, readings, requests)
    assert found.energy is not None and found.energy.seconds == pytest.approx(12.0)
    assert found.energy.j_per_token == pytest.approx(300.0)


def test_gpu_without_counter_makes_joules_null() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=100.0 * t, memory_used=5 + t), gpu("b", memory_used=1)))
        for t in range(11)
    ]
    found = energy_used(readings, [(2 * S, 8 * S)], 10)
    assert found is not None
    assert (found.joules, found.mean_w, found.j_per_token) == (None, None, None)
    assert found.peak_memory == 5 + 8 + 1


def test_readings_without_energy_are_skipped() -> None:
    readings = steady(200.0, 10)
    between = [Telemetry(t_ns=t * S + S // 2, gpus=(gpu("a", memory_used=3),)) for t in range(10)]
    found = energy_used(sorted([*readings, *between], key=lambda r: r.t_ns), [(S, 9 * S)], 100)
    assert found is not None and found.joules == pytest.approx(1600.0) and found.peak_memory == 3


def test_counter_reset_makes_joules_null() -> None:
    readings = steady(200.0, 10)
    readings[5:] = [Telemetry(t_ns=r.t_ns, gpus=(gpu("a", energy_j=float(i)),)) for i, r in enumerate(readings[5:])]
    found = energy_used(readings, [(S, 9 * S)], 100)
    assert found is not None and found.joules is None


def test_counter_reset_makes_joules_null_even_if_it_is_higher_at_the_end() -> None:
    counts = (1000.0, 1200.0, 0.0, 900.0, 1800.0)
    readings = [Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=count),)) for t, count in enumerate(counts)]
    found = energy_used(readings, [(0, 4 * S)], 100)
    assert found is not None and found.joules is None


def test_joules_are_null_without_readings() -> None:
    found = energy_used(steady(200.0, 10), [(8 * S, 20 * S)], 100)
    assert found is not None and found.joules is None
    assert energy_used([], [(0, S)], 100) is None
    assert energy_used([Telemetry(t_ns=0)], [(0, S)], 100) is None


def test_mig_devices_are_not_counted_twice() -> None:
    readings = [
        Telemetry(t_ns=t * S, gpus=(gpu("a", energy_j=10.0 * t, memory_used=8), gpu("m", part_of="a", memory_used=8)))
        for t in range(6)
    ]
    found = energy_used(readings, [(0, 5 * S)], 10)
    assert found is not None and found.joules == pytest.approx(50.0) and found.peak_memory == 8


def test_throttled_share_ignores_user_set_clocks() -> None:
    reasons = [(), ("power cap",), ("application clocks",), ("thermal", "power cap")]
    readings = [Telemetry(t_ns=t * S, gpus=(gpu("a", throttle=why),)) for t, why in enumerate(reasons)]
    found = energy_used(readings, [(0, 3 * S)], 10)
    assert found is not None
    assert (found.throttled, found.throttle) == (0.5, ("power cap", "thermal"))
    unknown = energy_used(steady(1.0, 3), [(0, 3 * S)], 10)
    assert unknown is not None and unknown.throttled is None


def test_simulated_gpu_is_marked() -> None:
    found = energy_used(steady(100.0, 5, simulated=True), [(0, 5 * S)], 10)
    assert found is not None and found.simulated


@given(
    watts=st.floats(1.0, 1000.0),
    start=st.floats(0.0, 9.0),
    length=st.floats(3.5, 9.0),
)
def test_constant_power_gives_mean_watts(watts: float, start: float, length: float) -> None:
    found = energy_used(steady(watts, 20), [(int(start * S), int((start + length) * S))], 1)
    assert found is not None and found.mean_w == pytest.approx(watts, rel=1e-4)


def test_incomplete_steered_stage_adds_no_joules() -> None:
    """C=1 briefly on the way up and later for long: tokens and energy are those of the later stage."""
    brief = stage(1, steered=True)
    long = stage(2, steered=True, t_ns=BOOT_NS + 10 * S)
    requests = [
        request(100, [200, 300], stage=1, task=1),
        *(request(10_000 + 1000 * n, [10_500 + 1000 * n, 10_900 + 1000 * n], stage=2, task=2 + n) for n in range(4)),
    ]
    ends = [end(1, at=8_000, complete=False), end(2, at=14_000)]
    readings = [msgspec.structs.replace(sample, t_ns=BOOT_NS + sample.t_ns) for sample in steady(300.0, 20)]
    levels = level_figures(requests, [brief, long], ends)
    (found,) = add_machine_figures(levels, [brief, long], ends, readings, requests)
    assert found.tokens_out == 8
    assert found.energy is not None and found.energy.j_per_token == pytest.approx(3.9 * 300 / 8)


def test_energy_per_token_is_power_over_throughput() -> None:
    """Tokens of unmeasured requests take energy too: pre-roll and fillers, and those that outlast a steered stage."""
    readings = [msgspec.structs.replace(sample, t_ns=BOOT_NS + sample.t_ns) for sample in steady(300.0, 20)]
    times = (0, [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000])
    one = [request(2000, [3000, 4000, 6000], c=2), request(*times, c=2, task=1, phase="preroll")]
    steered = [request(0, [1000, 2000, 3000, 4000], c=2), request(*times, c=2, task=1)]
    for requests, start, wall in ((one, stage(c=2), 7 / 4), (steered, stage(c=2, steered=True), 8 / 4)):
        ends = [end(at=4_500 if start.steered else 8_000)]
        (found,) = add_machine_figures(level_figures(requests, [start], ends), [start], ends, readings, requests)
        assert found.energy is not None and found.headline_tps is not None
        assert found.energy.j_per_token == pytest.approx(300.0 / found.headline_tps)
        assert found.out_tps_wall == pytest.approx(wall)


@pytest.mark.parametrize("load", ["open", "barrier", "swarm", "dag", "mixed", "closed"])
@pytest.mark.parametrize("ended", [True, False])
def test_power_and_throughput_are_of_the_same_time(load: Any, ended: bool) -> None:
    """The window lasts from the first send to the last token: the GPU idles in the rest of the stage."""
    busy = [(t, 100.0 * t + 200.0 * max(0, min(t, 6) - 2)) for t in range(11)]
    readings = [Telemetry(t_ns=BOOT_NS + t * S, gpus=(gpu(energy_j=joules),)) for t, joules in busy]
    requests = [
        request(2000 + 500 * n, [3000, 4000, 5000, 6000], task=n, t_sched_ns=BOOT_NS + (1 + n) * S) for n in range(2)
    ]
    starts = [stage(c=8, load=load, rate=2.0 if load == "open" else None)]
    ends = [end(at=10_000)] if ended else []
    (found,) = add_machine_figures(level_figures(requests, starts, ends), starts, ends, readings, requests)
    assert found.headline_tps == pytest.approx(2.0)
    assert found.energy is not None and found.energy.mean_w == pytest.approx(300.0) and found.energy.seconds == 4.0
    assert found.energy.j_per_token == pytest.approx(150.0) and found.energy.tokens_per_j == pytest.approx(1 / 150)
