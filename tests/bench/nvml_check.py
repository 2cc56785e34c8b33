"""Every NVML figure that we read beside nvidia-smi's of the same minute, and what each reading costs.

    python tests/bench/nvml_check.py [--seconds 5]

Ends with code 1 when a figure that should stand still differs, or when energy and power do not fit together.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

from swarmtui.model.telemetry import Gpu
from swarmtui.telemetry.gpu import NvmlReader

MIB = 1 << 20

# Column of nvidia-smi, our figure in its unit, how far apart they may be (a share of the larger; None: only shown).
COLUMNS: tuple[tuple[str, Callable[[Gpu], float | None], float | None], ...] = (
    ("memory.total", lambda g: _over(g.memory_total, MIB), 0.001),
    ("memory.used", lambda g: _over(g.memory_used, MIB), 0.05),
    ("memory.reserved", lambda g: _over(g.memory_reserved, MIB), 0.05),
    ("power.draw", lambda g: g.power_w, 0.25),
    ("enforced.power.limit", lambda g: g.power_limit_w, 0.001),
    ("utilization.gpu", lambda g: _over(g.utilisation, 0.01), None),
    ("utilization.memory", lambda g: _over(g.memory_utilisation, 0.01), None),
    ("temperature.gpu", lambda g: g.temperature_c, 0.10),
    ("temperature.memory", lambda g: g.memory_temperature_c, 0.10),
    ("clocks.sm", lambda g: g.sm_mhz, None),
    ("clocks.mem", lambda g: g.memory_mhz, None),
    ("clocks.max.sm", lambda g: g.sm_max_mhz, 0.001),
    ("fan.speed", lambda g: _over(g.fan, 0.01), 0.20),
    ("pcie.link.gen.gpucurrent", lambda g: g.pcie_generation, None),
    ("pcie.link.width.current", lambda g: g.pcie_width, 0.001),
    ("pcie.link.gen.gpumax", lambda g: g.pcie_max_generation, None),
    ("pcie.link.width.max", lambda g: g.pcie_max_width, 0.001),
)


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def smi(query: str, columns: list[str]) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-{query}={','.join(columns)}", "--format=csv,noheader,nounits"]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        print(f"nvidia-smi refused {columns}: {out.stdout.strip() or out.stderr.strip()}")
        return []
    return [[cell.strip() for cell in line.split(",")] for line in out.stdout.splitlines() if line.strip()]


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def compare(gpus: tuple[Gpu, ...]) -> int:
    wrong = 0
    print(f"{'GPU':>3}  {'figure':<26} {'ours':>12} {'nvidia-smi':>12}")
    for name, figure, limit in COLUMNS:
        by_uuid = {row[0]: row[1] for row in smi("gpu", ["uuid", name])}
        for gpu in gpus:
            ours, theirs = figure(gpu), number(by_uuid.get(gpu.uuid, ""))
            differ = (ours is None) != (theirs is None)
            if limit is not None and ours is not None and theirs is not None:
                differ = abs(ours - theirs) > max(limit * max(abs(ours), abs(theirs)), 1.0 if limit > 0.001 else 0.5)
            wrong += differ
            shown = ["–" if value is None else f"{value:,.1f}" for value in (ours, theirs)]
            print(f"{gpu.index:>3}  {name:<26} {shown[0]:>12} {shown[1]:>12}{'   DIFFERS' if differ else ''}")
    for gpu in gpus:
        theirs_pids = sorted(int(row[1]) for row in smi("compute-apps", ["gpu_uuid", "pid"]) if row[0] == gpu.uuid)
        ours_pids = sorted(process.pid for process in gpu.processes)
        print(f"{gpu.index:>3}  processes: ours {ours_pids}, nvidia-smi {theirs_pids}")
        print(f"{gpu.index:>3}  throttle {gpu.throttle}, NVLinks up {gpu.nvlinks_up}, sent {gpu.nvlink_sent} B")
    return wrong


def cost(reader: NvmlReader, *, whole: bool, count: int = 20) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        reader.read(whole=whole)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"read(whole={whole}): {1e3 * wall / count:.2f} ms, CPU {1e3 * cpu / count:.2f} ms")


def integrate(reader: NvmlReader, seconds: float) -> int:
    """The counter's watts beside the mean of sampled power: they fit within a quarter when the load is even."""
    first, begun = reader.read(), time.perf_counter()
    samples: list[list[float | None]] = []
    while time.perf_counter() - begun < seconds:
        time.sleep(0.25)
        samples.append([gpu.power_w for gpu in reader.read(whole=False)])
    last, taken = reader.read(), time.perf_counter() - begun
    wrong = 0
    for place, (before, after) in enumerate(zip(first, last, strict=True)):
        known = [row[place] for row in samples if len(row) > place]
        sampled = [value for value in known if value is not None]
        if before.energy_j is None or after.energy_j is None or not sampled:
            print(f"GPU {before.index}: no energy counter")
            continue
        counted, mean = (after.energy_j - before.energy_j) / taken, sum(sampled) / len(sampled)
        wrong += abs(counted - mean) > 0.25 * max(counted, mean)
        print(f"GPU {before.index}: {counted:.1f} W by the energy counter over {taken:.1f} s, {mean:.1f} W sampled")
    return wrong


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=5.0)
    seconds = arguments.parse_args().seconds
    reader = NvmlReader()
    gpus = tuple(gpu for gpu in reader.read() if not gpu.part_of)
    if reader.problem:
        print(reader.problem)
    if not gpus:
        return 1
    for gpu in gpus:
        print(gpu)
    wrong = compare(gpus)
    cost(reader, whole=True)
    cost(reader, whole=False)
    wrong += integrate(reader, seconds)
    print(f"{wrong} figures differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
