"""Apply known one-line faults to a copy of the tree, and report which of them the tests miss.

    python -m tests.mutants            all mutants
    python -m tests.mutants sse steer  those whose name contains one of the words
    python -m tests.mutants --jobs 16  so many at once, each in a copy of its own

A mutant names a file, an exact piece of its text, what replaces it, and the tests that should fail. The script runs
those tests once without a change, then once per mutant. It takes minutes, so it is run by hand and not in CI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import msgspec

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = Path(__file__).with_name("mutants.toml")
TIMEOUT_S = 300


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace the only occurrence of `old` in `file` by `new`; at least one of `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    options = parser.parse_args()
    chosen = [m for m in read_mutants() if not options.words or any(word in m.name for word in options.words)]
    with (
        tempfile.TemporaryDirectory(prefix="swarmtui-mutants-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            tree = Path(folder) / str(number)
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
            trees.put(tree)

        def fails(tests: tuple[str, ...]) -> bool:
            tree = trees.get()
            failed = not passes(tree, list(tests))
            trees.put(tree)
            return failed

        def is_alive(mutant: Mutant) -> bool:
            tree = trees.get()
            alive = survives(tree, mutant)
            trees.put(tree)
            return alive

        asked = sorted({tuple(m.tests) for m in chosen})
        broken = [tests for tests, failed in zip(asked, pool.map(fails, asked), strict=True) if failed]
        for tests in broken:
            print(f"these tests fail without a mutant: {' '.join(tests)}")
        tried = [m for m in chosen if tuple(m.tests) not in broken]
        survivors = [m.name for m, alive in zip(tried, pool.map(is_alive, tried), strict=True) if alive]
    print(f"{len(tried) - len(survivors)} of {len(tried)} mutants killed; survivors: {', '.join(survivors) or 'none'}")
    return 2 if broken else 1 if survivors else 0


def read_mutants() -> list[Mutant]:
    return msgspec.convert(tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["mutant"], list[Mutant])


def survives(tree: Path, mutant: Mutant) -> bool:
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        print(f"{mutant.name}: out of date: its text occurs {text.count(mutant.old)} times in {mutant.file}")
        return True
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        alive = passes(tree, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    print(f"{'SURVIVED' if alive else 'killed  '}  {mutant.name}", flush=True)
    return alive


def passes(tree: Path, tests: list[str]) -> bool:
    """Run tests in the copy; a test run that hangs counts as failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
