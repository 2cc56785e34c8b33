"""Tune a real llama.cpp with five knobs (200 configurations), and compare with the full grid.

python -m tests.real.tune --python PYTHON --model FILE [--budget 20m] [--try N] [--grid K/N] [--directory DIR]

PYTHON has `xllamacpp`. A try is one `swarmtui tune --auto` on tok/s, the grid measures every configuration once (about
an hour and a half on two cores; the same command continues it). Each of them is a call of its own, so that a host with
many cores can run several beside each other, each on two cores (`taskset`): K/N is part K of a grid in N parts, 1/1 all
of it. Without either, the table of what DIR holds is printed: how far what was found is from the best of the grid, by
the figures of the grid itself, and which share of its starts a try took.
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


def grid_part(options: argparse.Namespace) -> dict[str, float]:
    """Measure each configuration of a part once; return the tok/s by its key."""
    part, parts = map(int, options.grid.split("/"))
    base = f"{options.python} {HERE / 'serve_llamacpp.py'} --port {{port}} -m {options.model}"
    # The context grows with the slots, as it does in a try.
    rows = [
        {**dict(zip(GRID, values, strict=True)), "--ctx-size": CONTEXT * values[list(GRID).index("--parallel")]}
        for values in _product(*GRID.values())[part - 1 :: parts]
    ]
    tables = "\n".join(
        "[[configurations]]\n" + "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in row.items())
        for row in rows
    )
    plan = f'[plan]\nlevels = [{LEVEL}]\nduration = "{options.grid_duration}"\nmax_tokens = {MAX_TOKENS}\n'
    path = options.directory / f"grid-{part}.toml"
    path.write_text(f'name = "grid"\ncommand = "{base}"\nrestarts = 0\n{tables}\n{plan}')
    folder = options.directory / f"grid-{part}"
    found = json.loads(swarmtui("tune", str(path), "--session-dir", str(folder), "--yes", "--json"))
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
    parser.add_argument("--python")
    parser.add_argument("--model")
    parser.add_argument("--budget", default="20m")
    parser.add_argument("--try", type=int, dest="number")
    parser.add_argument("--grid", metavar="K/N")
    parser.add_argument("--grid-duration", default="13s", help="of each configuration; as long as a try screens one")
    parser.add_argument("--directory", type=Path, default=Path("/tmp/swarmtui-real-tune"))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.number:
        found = tune_once(options, options.number)
        (options.directory / f"try-{options.number}.json").write_text(json.dumps(found))
    if options.grid:
        measured = grid_part(options)
        (options.directory / f"grid-{options.grid.split('/')[0]}.json").write_text(json.dumps(measured))
    print_table(options.directory)


def print_table(directory: Path) -> None:
    grid: dict[str, float] = {}
    for path in directory.glob("grid-*.json"):
        grid |= json.loads(path.read_text())
    baseline = {"--threads": 1, "--parallel": 2, "--ubatch-size": 512, "--batch-size": 2048, "--flash-attn": "off"}
    total = len(_product(*GRID.values()))
    best = max(grid.values(), default=0.0)
    print(f"{len(grid)} of {total} configurations of the grid measured, the best {best:.1f} tok/s")
    print("| try | result | starts | of the grid | minutes | tok/s in the grid | behind its best |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    for path in sorted(directory.glob("try-*.json")):
        each = json.loads(path.read_text())
        mine = grid.get(_key(baseline | each["flags"]))
        behind = f"{1 - mine / best:.1%}" if mine and best else "–"
        shown = f"{mine:.1f}" if mine else "–"
        print(
            f"| {path.stem} | {each['sentence']} | {each['starts']} | {each['starts'] / total:.0%} | "
            f"{each['spent_s'] / 60:.1f} | {shown} | {behind} |"
        )


if __name__ == "__main__":
    main()
