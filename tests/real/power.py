"""Sweep the power limit of a real GPU in one start of a server, then kill swarmtui and see that the limit is restored.

    python3 tests/real/power.py --swarmtui 'python3 dist/swarmtui.pyz' [--watts 700,500,350,250] [--passes 3] [--json F]

Needs one NVIDIA GPU, permission to set its limit (root), nvidia-smi, PyTorch with CUDA in the Python that runs it,
30 GB of GPU memory and no network; takes about five minutes. The server is `serve_torch.py` (7 B parameters, random
weights). Exits with code 1 if a limit is not restored: after the sweep, after a kill -9 of the tune, and after one of
the tune and both processes that watch over its server, by the next start of swarmtui.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("serve_torch.py")
WAIT_S = 90.0
TUNE = """\
name = "power"
command = "{python} {server} {{port}} --layers {layers}"
ready_within = "120s"
stop_within = "5s"
restarts = {passes}
[[knob]]
kind = "power"
watts = {watts}
prefill = {prefill}
[plan]
levels = {levels}
duration = "{duration}"
max_tokens = 128
warmup = 2
"""


class Problem(Exception):
    """Something that the limit depends on did not happen in time."""


def limit() -> float:
    """The limit of the first GPU, as nvidia-smi reads it."""
    query = ("nvidia-smi", "-i", "0", "--query-gpu=power.limit", "--format=csv,noheader,nounits")
    return float(subprocess.run(query, capture_output=True, check=True, text=True).stdout.split()[0])


def wait_for(what: str, holds: Callable[[], bool]) -> float:
    """Wait, and return the seconds that it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > WAIT_S:
            raise Problem(f"not within {WAIT_S:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


class Tunes:
    """Starts `swarmtui tune` with a folder of its own for settings, sessions and state."""

    def __init__(self, swarmtui: str, folder: Path) -> None:
        self.swarmtui, self.folder = shlex.split(swarmtui), folder
        names = {"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder / "state"}
        self.env = os.environ | {name: str(path) for name, path in names.items()}

    def start(self, name: str, **fields: Any) -> subprocess.Popen[str]:
        path = self.folder / f"{name}.toml"
        path.write_text(TUNE.format(python=sys.executable, server=SERVER, **fields))
        words = [*self.swarmtui, "tune", str(path), "--yes", "--json", "--session-dir", str(self.folder / name)]
        log = (self.folder / f"{name}.err").open("w")
        return subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True)

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    def processes(self, part: str) -> list[int]:
        """Processes of these tunes whose command line contains `part`."""
        marker, found = f"XDG_STATE_HOME={self.folder / 'state'}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and marker in (entry / "environ").read_bytes().split(b"\0"):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if part.encode() in (entry / "cmdline").read_bytes() and state != "Z":
                        found.append(int(entry.name))
            except OSError:
                continue
        return found


def sweep(tunes: Tunes, watts: list[int], passes: int) -> dict[str, Any]:
    began = time.monotonic()
    tune = tunes.start("sweep", layers=32, passes=passes, watts=watts, prefill="true", levels=[4, 32], duration="4s")
    out, _ = tune.communicate()
    if tune.returncode:
        raise Problem(f"the tune ended with code {tune.returncode}:\n{tunes.errors('sweep')}")
    found: dict[str, Any] = json.loads(out)
    print(f"sweep: {len(watts)} limits, {passes} passes, {time.monotonic() - began:.0f} s, one start of the server\n")
    print("limit W   C=4 tok/s   C=32 tok/s   J/token   prefill   decode   GPU W   TTFT s")
    (path,) = (tunes.folder / "sweep").glob(".tuning/*/tune.json")
    starts = json.loads(path.read_text())["starts"]
    for row in sorted(found["leaderboard"], key=lambda row: -row["flags"]["power_w"]):
        same = [start for start in starts if start["flags"] == row["flags"] and start["state"] == "done"]
        by_c = {
            c: [one["out_tps"] for start in same for one in start["levels"] if one["c"] == c and one["out_tps"]]
            for c in (4, 32)
        }
        cells = [_text(sum(by_c[c]) / len(by_c[c]) if by_c[c] else None, 0) for c in (4, 32)]
        cells += [_text(row[name], 4) for name in ("j_per_token", "prefill_j_per_token", "decode_j_per_token")]
        cells += [_text(row["mean_w"], 0), _text(row["ttft_s"], 3)]
        widths = (12, 13, 10, 10, 9, 8, 9)
        cells = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        print(f"{row['flags']['power_w']:7}{''.join(cells)}   {row['reason']}")
    print(f"\n{found['power_sentence']}")
    for effect in found["power"]:
        tps, energy = effect["tps_range"], effect["energy_range"]
        shown = [f"{100 * one['low']:+.1f} to {100 * one['high']:+.1f} %" if one else "-" for one in (tps, energy)]
        print(
            f"  {effect['watts']:g} W: tok/s {100 * effect['tps']:+.1f} % ({shown[0]}), "
            f"J/token {100 * effect['energy']:+.1f} % ({shown[1]})"
        )
    return found


def _text(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def kill(tunes: Tunes, name: str, watts: int, *, all_three: bool) -> dict[str, Any]:
    """Kill a tune while the limit is set; return how long it took until it was restored, and by whom."""
    before = limit()
    tune = tunes.start(name, layers=2, passes=0, watts=[watts], prefill="false", levels=[4], duration="60s")
    wait_for(f"a limit of {watts} W", lambda: limit() == watts)
    guardians = tunes.processes("server_guardian") if all_three else []
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them may act when another one is gone
        for pid in (tune.pid, *guardians):
            os.kill(pid, number)
    tune.wait()
    after_kill, line = limit(), ""
    if all_three:
        time.sleep(3.0)
        after_kill = limit()
        again = [*tunes.swarmtui, "sim", "--list"]
        ran = subprocess.run(again, env=tunes.env, capture_output=True, text=True, check=False)
        line = next((one for one in ran.stderr.splitlines() if "restored" in one), "no line says so")
        seconds = 0.0
    else:
        seconds = wait_for(f"the limit of {before:g} W again", lambda: limit() == before)
    after = limit()
    wait_for("the server has ended", lambda: not tunes.processes("serve_torch"))
    who = "tune, guardian and watcher" if all_three else "tune"
    print(f"kill -9 of {who}: {before:g} W, set {watts} W, after the kill {after_kill:g} W, then {after:g} W {line}")
    return {"killed": who, "before": before, "set": watts, "killed_w": after_kill, "after": after, "s": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmtui", default=f"{sys.executable} -m swarmtui", help="the command, in quotes")
    parser.add_argument("--watts", default="700,500,350,250")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    watts, before = [int(text) for text in given.watts.split(",")], limit()
    print(f"power limit before: {before:g} W", flush=True)
    result: dict[str, Any] = {"before": before}
    with tempfile.TemporaryDirectory(prefix="power-") as folder:
        tunes = Tunes(given.swarmtui, Path(folder))
        try:
            result["kills"] = [
                kill(tunes, f"kill-{all_three}", min(watts), all_three=all_three) for all_three in (False, True)
            ]
            result["sweep"] = sweep(tunes, watts, given.passes)
        except Problem as problem:
            print(f"\n{problem}")
            result["problem"] = str(problem)
        finally:
            for pid in tunes.processes(""):
                os.kill(pid, signal.SIGTERM)
            result["after"] = after = limit()
            print(f"\npower limit after: {after:g} W", flush=True)
            if given.json:
                given.json.write_text(json.dumps(result, indent=1))
    restored = after == before and all(kill["after"] == before for kill in result.get("kills", ()))
    return 0 if restored and "problem" not in result else 1


if __name__ == "__main__":
    sys.exit(main())
