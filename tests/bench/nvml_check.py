"""Measure the cost of NVML calls and of sampling eight GPUs, and compare all figures with nvidia-smi.

    python -m tests.bench.nvml_check [--seconds 60] [--gpus 8] [--calls 200]

Takes about twenty seconds longer than `--seconds`. Exits with code 1 if a constant figure differs, if energy and power
disagree, or if sampling that many GPUs (the first one, repeated) exceeds its CPU limit.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import pynvml

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu import readers
from swarmtui.telemetry.gpu.nvml import QUERIES, SLOW_QUERIES, NvmlReader

MIB = 1 << 20
ROW_S = 1.5
MAX_CPU_SHARE = 0.02

# Column of nvidia-smi, our figure in its unit, and the largest relative difference (None: only shown).
COLUMNS: tuple[tuple[str, Callable[[Gpu], float | None], float | None], ...] = (
    ("memory.total", lambda g: _scaled(g.memory_total, MIB), 0.001),
    ("memory.used", lambda g: _scaled(g.memory_used, MIB), 0.05),
    ("power.draw", lambda g: g.power_w, 0.25),
    ("enforced.power.limit", lambda g: g.power_limit_w, 0.001),
    ("utilization.gpu", lambda g: _scaled(g.utilisation, 0.01), None),
    ("temperature.gpu", lambda g: g.temperature_c, 0.10),
    ("clocks.sm", lambda g: g.sm_mhz, None),
    ("clocks.max.sm", lambda g: g.sm_max_mhz, 0.001),
)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def smi(query: str, columns: list[str]) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{query}={','.join(columns)}", "--format=csv,noheader,nounits"]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        print(f"nvidia-smi refused {columns}: {out.stdout.strip() or out.stderr.strip()}")
        return []
    return [[cell.strip() for cell in line.split(",")] for line in out.stdout.splitlines() if line.strip()]


def query_smi(columns: list[str]) -> dict[str, dict[str, str]]:
    """Return the values by UUID and column; one query per column if an old nvidia-smi rejects some."""
    if rows := smi("gpu", ["uuid", *columns]):
        return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in rows}
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for column in columns:
        for row in smi("gpu", ["uuid", column]):
            found[row[0]][column] = row[1]
    return found


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def compare(reader: NvmlReader) -> int:
    print("\n== comparison with nvidia-smi")
    theirs_by_uuid = query_smi([name for name, _, _ in COLUMNS])
    gpus = tuple(gpu for gpu in reader.read() if not gpu.part_of)
    wrong = 0
    print(f"{'GPU':>3}  {'figure':<26} {'ours':>12} {'nvidia-smi':>12}")
    for gpu in gpus:
        for name, figure, limit in COLUMNS:
            ours, theirs = figure(gpu), number(theirs_by_uuid.get(gpu.uuid, {}).get(name, ""))
            differ = (ours is None) != (theirs is None)
            if limit is not None and ours is not None and theirs is not None:
                differ = abs(ours - theirs) > max(limit * max(abs(ours), abs(theirs)), 1.0 if limit > 0.001 else 0.5)
            wrong += differ
            shown = ["–" if value is None else f"{value:,.1f}" for value in (ours, theirs)]
            print(f"{gpu.index:>3}  {name:<26} {shown[0]:>12} {shown[1]:>12}{'   DIFFERS' if differ else ''}")
        theirs_pids = sorted(int(row[1]) for row in smi("compute-apps", ["gpu_uuid", "pid"]) if row[0] == gpu.uuid)
        ours_pids = sorted(gpu.pids)
        print(f"{gpu.index:>3}  processes: ours {ours_pids}, nvidia-smi {theirs_pids}")
        print(f"{gpu.index:>3}  throttle {gpu.throttle}")
    return wrong


def fields(handle: Any, *names: str) -> None:
    """Query several fields in one call; raise if none of them is supported."""
    found = pynvml.nvmlDeviceGetFieldValues(handle, [getattr(pynvml, f"NVML_FI_DEV_{name}") for name in names])
    failed = [value.nvmlReturn for value in found if value.nvmlReturn]
    if len(failed) == len(names):
        raise pynvml.NVMLError(failed[0])


def recent_samples(handle: Any, kind: int) -> None:
    """Query the driver's buffer of readings of the last second."""
    since = time.time_ns() // 1000 - 1_000_000
    pynvml.nvmlDeviceGetSamples(handle, kind, since)


# Alternative calls, for comparison.
ALTERNATIVES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("memory, v1 call", pynvml.nvmlDeviceGetMemoryInfo),
    ("temperature, new call", lambda h: pynvml.nvmlDeviceGetTemperatureV(h, pynvml.NVML_TEMPERATURE_GPU)),
    ("sm clock, nvmlDeviceGetClock", lambda h: pynvml.nvmlDeviceGetClock(h, pynvml.NVML_CLOCK_SM, 0)),
    ("performance state", pynvml.nvmlDeviceGetPerformanceState),
    ("field: power instant", lambda h: fields(h, "POWER_INSTANT")),
    ("field: power average", lambda h: fields(h, "POWER_AVERAGE")),
    ("field: energy", lambda h: fields(h, "TOTAL_ENERGY_CONSUMPTION")),
    ("field: memory temperature", lambda h: fields(h, "MEMORY_TEMP")),
    ("fields: power average + energy", lambda h: fields(h, "POWER_AVERAGE", "TOTAL_ENERGY_CONSUMPTION")),
    (
        "fields: power avg + energy + mem temp + limit",
        lambda h: fields(h, "POWER_AVERAGE", "TOTAL_ENERGY_CONSUMPTION", "MEMORY_TEMP", "POWER_CURRENT_LIMIT"),
    ),
    ("fields: throttled ns by power + thermal", lambda h: fields(h, "PERF_POLICY_POWER", "PERF_POLICY_THERMAL")),
    ("fields: PCIe bytes sent + received", lambda h: fields(h, "PCIE_COUNT_TX_BYTES", "PCIE_COUNT_RX_BYTES")),
    ("samples of power, last second", lambda h: recent_samples(h, pynvml.NVML_TOTAL_POWER_SAMPLES)),
    ("samples of utilisation, last second", lambda h: recent_samples(h, pynvml.NVML_GPU_UTILIZATION_SAMPLES)),
    ("processes, v2 call", pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    ("PCIe throughput (blocks)", lambda h: pynvml.nvmlDeviceGetPcieThroughput(h, pynvml.NVML_PCIE_UTIL_TX_BYTES)),
)


def cost_of_calls(handle: Any, calls: int) -> None:
    print(f"\n== cost per call, mean of up to {calls} (at most {ROW_S:g} s each)")
    print(f"{'call':<46} {'depth':<9} {'calls':>5} {'wall µs':>9} {'CPU µs':>9} {'user µs':>9} {'system µs':>9}")
    for name, query in {**QUERIES, **SLOW_QUERIES}.items():
        cost(name, "full" if name in SLOW_QUERIES else "fast", partial(query, pynvml), handle, calls)
    for name, call in ALTERNATIVES:
        cost(name, "–", call, handle, calls)
    cost("(an empty Python call)", "–", lambda h: None, handle, calls)


def cost(name: str, depth: str, call: Callable[[Any], Any], handle: Any, calls: int) -> None:
    try:
        call(handle)
        made, before, started, cpu = (
            0,
            resource.getrusage(resource.RUSAGE_SELF),
            time.perf_counter(),
            time.process_time(),
        )
        while made < calls and time.perf_counter() - started < ROW_S:
            call(handle)
            made += 1
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        print(f"{name:<46} {depth:<9} not supported: {type(error).__name__}")
        return
    except AttributeError as error:
        print(f"{name:<46} {depth:<9} not in this pynvml: {error}")
        return
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    each = [wall, cpu, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime]
    print(f"{name:<46} {depth:<9} {made:>5} " + " ".join(f"{1e6 * part / made:>9.1f}" for part in each))


def refresh(handle: Any, seconds: float = 2.0) -> None:
    """Measure how often the driver updates its figures: reading more often is useless."""
    print(f"\n== updates of each figure in {seconds:g} s, read every 10 ms")
    calls: dict[str, Callable[[], Any]] = {
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "energy": lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "utilisation": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "temperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "sm clock": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
    }
    last: dict[str, Any] = {}
    changes: defaultdict[str, list[float]] = defaultdict(list)
    started = time.perf_counter()
    while (now := time.perf_counter()) - started < seconds:
        for name, call in list(calls.items()):
            try:
                value = call()
            except pynvml.NVMLError as error:
                print(f"{name:<14} {type(error).__name__}")
                del calls[name]
                continue
            if last.setdefault(name, value) != value:
                last[name] = value
                changes[name].append(now)
        time.sleep(0.01)
    for name in calls:
        times = changes[name]
        gaps = sorted(later - earlier for earlier, later in pairwise(times))
        every = f"every {1e3 * gaps[len(gaps) // 2]:.0f} ms (median)" if gaps else "too few updates"
        print(f"{name:<14} {len(times):>4} times, {every}; last {last[name]}")


def repeated_gpu(count: int) -> ModuleType:
    """Return a copy of pynvml that lists the first GPU `count` times."""
    many = ModuleType("pynvml")
    vars(many).update({name: value for name, value in vars(pynvml).items() if not name.startswith("__")})
    vars(many)["nvmlDeviceGetCount"] = lambda: count
    vars(many)["nvmlDeviceGetHandleByIndex"] = lambda index: pynvml.nvmlDeviceGetHandleByIndex(0)
    return many


def cost_of_sampling(count: int, seconds: float) -> int:
    """Sample as a session does; power by the energy counter must agree with sampled power."""
    print(f"\n== reading {count} GPUs (the first, {count} times) for {seconds:g} s as a session does")
    print(
        f"   samples every {readers.SAMPLE_S} s; slowly changing figures and the energy counter every"
        f" {readers.FULL_S} s or for at most {100 * readers.FULL_SHARE:g} % of a core"
    )
    sys.modules["pynvml"] = repeated_gpu(count)
    reader, pace = NvmlReader(), readers.ReadCadence()
    first_cpu = time.process_time()
    reader.read()
    print(f"   opening and first sample: CPU {1e3 * (time.process_time() - first_cpu):.1f} ms")
    samples: defaultdict[bool, list[tuple[float, float]]] = defaultdict(list)
    sampled: list[float] = []
    counted: list[tuple[float, float]] = []
    started, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        full = pace.next_is_full(time.monotonic())
        sampled_at, thread = time.perf_counter(), time.thread_time()
        gpus = reader.read(full=full)
        spent, taken = time.thread_time() - thread, time.perf_counter() - sampled_at
        samples[full].append((spent, taken))
        if gpus and gpus[0].power_w is not None:
            sampled.append(gpus[0].power_w)
        if gpus and gpus[0].energy_j is not None:
            counted.append((sampled_at, gpus[0].energy_j))
        time.sleep(pace.pause(spent, taken))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - started
    sys.modules["pynvml"] = pynvml
    for full, each in sorted(samples.items()):
        mean_cpu, mean_wall = (1e3 * sum(column) / len(each) for column in zip(*each, strict=True))
        share = sum(spent for spent, _ in each) / wall
        name = "full" if full else "fast"
        print(
            f"   {name:<9} {len(each):>4} samples, CPU {mean_cpu:7.2f} ms, wall {mean_wall:7.2f} ms each:"
            f" {100 * share:.2f} % of a core"
        )
    rate, share = sum(map(len, samples.values())) / wall, cpu / wall
    print(f"   {rate:.2f} samples/s, {100 * share:.2f} % of a core in total (limit {100 * MAX_CPU_SHARE:g} %)")
    if reader.problem:
        print(f"   {reader.problem}")
    wrong = int(share > MAX_CPU_SHARE)
    if len(counted) > 1 and sampled:
        (start, before), (end, after) = counted[0], counted[-1]
        counter, mean = (after - before) / (end - start), sum(sampled) / len(sampled)
        wrong += abs(counter - mean) > 0.25 * max(counter, mean)
        print(f"   {counter:.1f} W by the energy counter over {end - start:.1f} s, {mean:.1f} W sampled")
    else:
        print("   no energy counter")
    reader.close()
    return wrong


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--gpus", type=int, default=8)
    arguments.add_argument("--calls", type=int, default=200)
    chosen = arguments.parse_args()
    reader = NvmlReader()
    gpus = reader.read()
    if reader.problem:
        print(reader.problem)
    if not gpus:
        return 1
    print(f"driver {pynvml.nvmlSystemGetDriverVersion()}, NVML {pynvml.nvmlSystemGetNVMLVersion()}")
    for gpu in gpus:
        print(gpu)
    wrong = compare(reader)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    cost_of_calls(handle, chosen.calls)
    refresh(handle)
    wrong += cost_of_sampling(chosen.gpus, chosen.seconds)
    reader.close()
    print(f"\n{wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
