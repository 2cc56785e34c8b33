"""Tune a real llama.cpp with five knobs (200 configurations), and compare with the full grid.

python -m tests.real.tune --python PYTHON --model FILE [--budget 20m] [--try N] [--grid K/N] [--best N]
                          [--directory DIR]

PYTHON has `xllamacpp`. A try is one `swarmtui tune --auto` on tok/s, the grid measures every configuration once (about
50 minutes on two cores; the same command continues it). The best of 200 single starts was mostly lucky: `--best N`
restarts the best N of the grid and what the tries found, three times in turn. Each of these is a call of its own, so
that a host with many cores can run several beside each other, each on two cores (`taskset`): K/N is part K of a grid in
N parts, 1/1 all of it. Without any, the table of what DIR holds is printed: how far what was found is from the best, by
these restarts or else by the grid itself, and which share of its starts a try took.
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
BASELINE = {"--threads": 1, "--parallel": 2, "--ubatch-size": 512, "--batch-size": 2048, "--flash-attn": "off"}
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
    rows = [dict(zip(GRID, values, strict=True)) for values in _product(*GRID.values())[part - 1 :: parts]]
    return measure(options, f"grid-{part}", rows, restarts=0)


def restart_best(options: argparse.Namespace) -> dict[str, float]:
    """Restart the best of the grid and what the tries found; return the mean tok/s of these restarts by key."""
    grid, tries = read_grid(options.directory), read_tries(options.directory).values()
    best = sorted(grid, key=lambda key: -grid[key])[: options.best]
    keys = dict.fromkeys([*best, *(_key(BASELINE | each["flags"]) for each in tries)])
    return measure(options, "best", [json.loads(key) for key in keys], restarts=3)


def measure(options: argparse.Namespace, name: str, rows: list[dict[str, Any]], *, restarts: int) -> dict[str, float]:
    """Measure configurations with `swarmtui tune FILE`; return the tok/s by key."""
    base = f"{options.python} {HERE / 'serve_llamacpp.py'} --port {{port}} -m {options.model}"
    tables = "\n".join(
        "[[configurations]]\n"
        + "\n".join(
            f"{json.dumps(flag)} = {json.dumps(value)}"
            # The context grows with the slots, as it does in a try.
            for flag, value in (row | {"--ctx-size": CONTEXT * row["--parallel"]}).items()
        )
        for row in rows
    )
    plan = f'[plan]\nlevels = [{LEVEL}]\nduration = "{options.grid_duration}"\nmax_tokens = {MAX_TOKENS}\n'
    path, folder = options.directory / f"{name}.toml", options.directory / name
    restarted = f"restarts = {restarts}\nfinalists = {max(2, len(rows))}\n"
    path.write_text(f'name = "grid"\ncommand = "{base}"\n{restarted}{tables}\n{plan}')
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
    parser.add_argument("--best", type=int, metavar="N")
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
    if options.best:
        (options.directory / "best.json").write_text(json.dumps(restart_best(options)))
    print_table(options.directory)


def read_grid(directory: Path) -> dict[str, float]:
    return {key: tps for path in directory.glob("grid-*.json") for key, tps in json.loads(path.read_text()).items()}


def read_tries(directory: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(directory.glob("try-*.json"))}


def print_table(directory: Path) -> None:
    grid, path = read_grid(directory), directory / "best.json"
    restarted = json.loads(path.read_text()) if path.exists() else {}
    total, measured = len(_product(*GRID.values())), restarted or grid
    by, best = "restarts" if restarted else "the grid", max(measured.values(), default=0.0)
    print(f"{len(grid)} of {total} configurations of the grid measured, the best {max(grid.values(), default=0.0):.1f}")
    for key, tps in sorted(restarted.items(), key=lambda each: -each[1]):
        print(f"restarted: {tps:.1f} tok/s (in the grid {grid.get(key, 0.0):.1f}) {key}")
    print(f"| try | result | starts | of the grid | minutes | tok/s by {by} | behind the best |")
    print("| --- | --- | --: | --: | --: | --: | --: |")
    for name, each in read_tries(directory).items():
        mine = measured.get(_key(BASELINE | each["flags"]))
        behind = f"{1 - mine / best:.1%}" if mine and best else "–"
        shown = f"{mine:.1f}" if mine else "–"
        print(
            f"| {name} | {each['sentence']} | {each['starts']} | {each['starts'] / total:.0%} | "
            f"{each['spent_s'] / 60:.1f} | {shown} | {behind} |"
        )


if __name__ == "__main__":
    main()
