"""Run every fault known so far, each with its expected outcome, and print what differs.

    python -m tests.faults.matrix                              # each row once
    python -m tests.faults.matrix --minutes 30 --seed 7        # again and again, at other moments, for this time
    python -m tests.faults.matrix answers kills --minutes 5    # some groups
    python -m tests.faults.matrix soak                         # an hour, or --minutes; only when named

The groups are: `answers` of a server, odd ones in each API; random `bytes` instead of an answer; `kills`, signals to
processes of a run at random moments; `two`, a second fault while the first one lasts; and the tests of this directory
and others about `disk`, `files`, `terminal`, `hosts`, `leaving`, `restarts` and `secrets`, one row for each. The order
and all random choices follow from the seed, which is printed with a row that differs. The exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from swarmtui.loadgen.connection import CLIENT_FAULT
from swarmtui.model.endpoint import PATHS, Dialect
from tests.cli.programs import ROOT
from tests.faults.fuzz_stream import random_response, run_request
from tests.faults.hostile import CASES, HEAVY, LONG_TIMEOUTS, TIMED, TIMEOUTS, HostileServer
from tests.faults.kill_matrix import DOUBLE_FAULTS, OUTCOMES, Fault, Outcome, run_round
from tests.loadgen.driver import DrivenWorker, task

# Tests that are rows: each expects to pass, or to be skipped where the machine does not have what it needs.
TESTS = {
    "disk": ("tests/faults/test_disk.py", "tests/faults/test_limits.py"),
    "files": ("tests/faults/test_hostile_files.py", "tests/faults/test_fuzz.py"),
    "terminal": ("tests/tui/test_terminal.py", "tests/tui/test_hostile_text.py"),
    "hosts": ("tests/hosts",),
    "leaving": (
        "tests/faults/test_leaving.py",
        "tests/faults/test_kill.py",
        "tests/faults/test_waits.py",
        "tests/experiments/test_managed_server.py",
    ),
    "restarts": ("tests/faults/test_restart.py", "tests/faults/test_clock.py"),
    "secrets": ("tests/faults/test_security.py", "tests/cli/test_secrets.py", "tests/tui/test_secrets.py"),
}
BY_HAND = ("soak",)
_ANSWERS = 2_000


class Row(NamedTuple):
    """A fault: `run` takes an empty directory and a seed, and returns what happened."""

    group: str
    name: str
    expected: str
    run: Callable[[Path, int], str]


def rows(groups: list[str], minutes: float | None = None) -> list[Row]:
    found = [
        Row("answers", f"{name} · {dialect}", case.error or "ok", partial(_answer, name, dialect))
        for name, case in CASES.items()
        for dialect in PATHS
    ]
    found += [Row("bytes", dialect, "no error of ours", partial(_bytes, dialect)) for dialect in PATHS]
    found += [Row("kills", " ".join(fault), end, partial(_kill, (fault,), end)) for fault, end in OUTCOMES.items()]
    for faults, end in DOUBLE_FAULTS.items():
        found.append(Row("two", " + ".join(" ".join(fault) for fault in faults), end, partial(_kill, faults, end)))
    found += [Row("soak", f"{minutes or 60:g} min at C=64 with the app attached", "constant", partial(_soak, minutes))]
    wanted = groups or [*dict.fromkeys(row.group for row in found), *TESTS]
    for group in (group for group in TESTS if group in wanted):
        found += [Row(group, node, "passed", partial(_test, node)) for node in _nodes(TESTS[group])]
    return [row for row in found if row.group in wanted and (row.group not in BY_HAND or row.group in groups)]


def _answer(case: str, dialect: Dialect, home: Path, seed: int) -> str:
    """Send a request that is mistreated and, with it, one that is not."""
    limits = TIMEOUTS if case in TIMED else LONG_TIMEOUTS
    with HostileServer() as server, DrivenWorker(server.url, timeouts=limits, dialect=dialect) as worker:
        texts = (f"question {seed} <{case}>", f"question {seed} <>")
        if case in HEAVY:
            records = [record for number, text in enumerate(texts) for record in worker.run([task(number, text)])]
        else:
            records = worker.run([task(number, text) for number, text in enumerate(texts)], agents=2)
    errors = {record.task: record.error or "ok" for record in records}
    return errors[0] if errors[1] == "ok" else f"{errors[0]}, and the healthy one: {errors[1]}"


def _bytes(dialect: Dialect, home: Path, seed: int) -> str:
    chance = random.Random(seed)
    for _ in range(_ANSWERS):
        pieces = random_response(chance)
        record = run_request(dialect, pieces)
        if record.error == CLIENT_FAULT:
            return f"{record.error_detail}: {b''.join(pieces)[:300]!r}"
    return "no error of ours"


def _kill(faults: tuple[Fault, ...], outcome: Outcome, home: Path, seed: int) -> str:
    result = run_round(home, faults, seed)
    return outcome if result.clean else str(result)


def _nodes(paths: tuple[str, ...]) -> list[str]:
    ran = _pytest("--collect-only", *paths)
    found = [line for line in ran.stdout.splitlines() if "::" in line]
    assert found, ran.stdout + ran.stderr
    return found


def _test(node: str, home: Path, seed: int) -> str:
    ran = _pytest("--tb=short", "--basetemp", str(home / "pytest"), node)
    return "passed" if ran.returncode == 0 else ran.stdout[-1000:]


def _pytest(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _soak(minutes: float | None, home: Path, seed: int) -> str:
    command = [sys.executable, "-m", "tests.faults.soak", "--minutes", f"{minutes or 60:g}"]
    ran = subprocess.run(command, cwd=ROOT, check=False)
    return "constant" if ran.returncode == 0 else "see above"


def _in_random_order(table: list[Row], chance: random.Random, minutes: float | None) -> Iterator[tuple[Row, int]]:
    """Yield each row with a seed of its own, once; or again and again until the time is over."""
    end = time.monotonic() + 60 * (minutes or 0)
    for _ in range(1) if minutes is None else count():
        for row in chance.sample(table, len(table)):
            if minutes is not None and time.monotonic() > end:
                return
            yield row, chance.randrange(1 << 32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--minutes", type=float, help="run rows until this time is over; by default, each once")
    parser.add_argument("--seed", default="0", help="any text, such as a commit")
    parser.add_argument("--row", default="", help="only rows with this in their name")
    options = parser.parse_args()
    table = [row for row in rows(options.groups, options.minutes) if options.row in row.name]
    if not table:
        parser.error("no such rows")
    done, differing = Counter[str](), 0
    for row, seed in _in_random_order(table, random.Random(options.seed), options.minutes):
        # What the rows start finds its files here, not in those of the user.
        with tempfile.TemporaryDirectory(prefix="swarmtui-matrix-") as home:
            os.environ |= {"HOME": home, "XDG_RUNTIME_DIR": home}
            try:
                outcome = row.run(Path(home), seed)
            except AssertionError as error:
                outcome = str(error)[-300:]
        done[row.group] += 1
        if outcome != row.expected:
            differing += 1
            print(f"{row.group}: {row.name}: expected {row.expected}, got {outcome} (seed {seed})", flush=True)
    print(f"{done.total()} rows ({', '.join(f'{n} {group}' for group, n in done.items())}), {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
