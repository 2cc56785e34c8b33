"""Tune a real llama.cpp with five knobs (200 configurations), and compare with the full grid.

python -m tests.real.tune --python PYTHON --model FILE [--budget 20m] [--tries 2] [--grid] [--directory DIR]

PYTHON has `xllamacpp`. Each try is one `swarmtui tune --auto` on tok/s. `--grid` then measures every configuration once
(about an hour and a half on two cores; the same command continues it), and the table says how far what was found is
from the best of the grid, by the figures of the grid itself, and which share of its starts a try took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GRID: dict[str, list[Any]] = {
    "--threads": [1, 2],
    "--parallel": [1, 2, 4, 8, 16],
    "--ubatch-size": [32, 64, 128, 256, 512],
    "--batch-size": [512, 2048],
    "--flash-attn": ["on", "off"],
}
LEVEL, MAX_TOKENS, CONTEXT = 8, 64, 2048
# As long as a start of a try while it screens, with a budget of 20 minutes.
GRID_DURATION = "13s"


def server_command(options: argparse.Namespace) -> str:
    base = f"{options.python} {HERE / 'serve_llamacpp.py'} --port {{port}} -m {options.model}"
    return f"{base} -np 2 -c {2 * CONTEXT} -t 1 -ub 512 -b 2048 -fa off"


def swarmtui(*words: str) -> str:
    command = [sys.executable, "-m", "swarmtui", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {' '.join(command)}")
    return done.stdout


def tune_once(options: argparse.Namespace, number: int) -> dict[str, Any]:
    knobs = [word for name, values in GRID.items() for word in ("--knob", f"{name}={','.join(map(str, values))}")]
    found: dict[str, Any] = json.loads(
        swarmtui(
            "tune", "--auto", server_command(options), "--engine", "llama.cpp", "--objective", "tok_s", "--budget",
            options.budget, *knobs, "--levels", str(LEVEL), "--max-tokens", str(MAX_TOKENS),
            "--session-dir", str(options.directory / f"try-{number}"), "--yes", "--json",
        )
    )  # fmt: skip
    print(f"try {number}: {found['sentence']}", file=sys.stderr, flush=True)
    return found


def full_grid(options: argparse.Namespace) -> dict[str, float]:
    """Measure each configuration once; return the tok/s by its key."""
    base = f"{options.python} {HERE / 'serve_llamacpp.py'} --port {{port}} -m {options.model}"
    # The context grows with the slots, as it does in a try.
    rows = [
        {**dict(zip(GRID, values, strict=True)), "--ctx-size": CONTEXT * values[list(GRID).index("--parallel")]}
        for values in _product(*GRID.values())
    ]
    tables = "\n".join(
        "[[configurations]]\n" + "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in row.items())
        for row in rows
    )
    plan = f'[plan]\nlevels = [{LEVEL}]\nduration = "{GRID_DURATION}"\nmax_tokens = {MAX_TOKENS}\n'
    path = options.directory / "grid.toml"
    path.write_text(f'name = "grid"\ncommand = "{base}"\nrestarts = 0\n{tables}\n{plan}')
    found = json.loads(swarmtui("tune", str(path), "--session-dir", str(options.directory / "grid"), "--yes", "--json"))
    return {_key(row["flags"]): row["out_tps"] for row in found["leaderboard"] if row["state"] == "done"}


def _product(*values: list[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = [()]
    for each in values:
        rows = [(*row, value) for row in rows for value in each]
    return rows


def _key(flags: dict[str, Any]) -> str:
    return json.dumps({name: flags[name] for name in GRID}, sort_keys=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--budget", default="20m")
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path("/tmp/swarmtui-real-tune"))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    found = [tune_once(options, number) for number in range(1, options.tries + 1)]
    grid = full_grid(options) if options.grid else {}
    baseline = {"--threads": 1, "--parallel": 2, "--ubatch-size": 512, "--batch-size": 2048, "--flash-attn": "off"}
    total = len(_product(*GRID.values()))
    print("| try | result | starts | of the grid | minutes | tok/s in the grid | best of the grid | behind |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: |")
    best = max(grid.values(), default=0.0)
    for number, each in enumerate(found, start=1):
        mine = grid.get(_key(baseline | each["flags"]))
        behind = f"{1 - mine / best:.1%}" if mine and best else "–"
        shown = f"{mine:.1f}" if mine else "–"
        print(
            f"| {number} | {each['sentence']} | {each['starts']} | {each['starts'] / total:.0%} | "
            f"{each['spent_s'] / 60:.1f} | {shown} | {best or '–'} | {behind} |"
        )


if __name__ == "__main__":
    main()
