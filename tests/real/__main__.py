"""Cause faults on real inference servers, and count in how many runs swarmtui names them.

    python -m tests.real                                                 # llama.cpp and vLLM, on the CPU
    python -m tests.real --engines llama.cpp --only freeze-decode,second-client --times 3
    python -m tests.real --minutes 20; python -m tests.real --resume     # the rest another time
    python -m tests.real --engines vllm --python ~/vllm/bin/python       # an engine that is installed already
    python -m tests.real --endpoint http://127.0.0.1:8000 --pid 4711     # a server that is running

The engines come from the package index, into environments below --dir: llama.cpp takes 20 s and 200 MB, vLLM 3 minutes
and 2 GB. Their models are made here, with random weights. Faults are repeated --times, and each must be named in every
run by one of its codes; healthy runs, --healthy-times, must be without a doubtful line in 19 of 20. A round begins when
the server is idle and, within --quiet seconds, the host is. A run that is doubtful only because the host was busy is
repeated (also if its client or server was late for that reason), and so is one in which the moment for the fault was
missed, at most twice as often as there are runs. `rounds.jsonl` has a line for each run. The exit code is 1 if
something differs or is missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from platformdirs import user_cache_dir

from tests.real.faults import CASES, Case, NotCaused, only_the_host, write_workloads
from tests.real.results import Log, Outcome, Row, table
from tests.real.servers import ENGINES, Server, StartedServer, install, make_model, wait_until_quiet

_REPEATS = 2


def run_case(case: Case, server: Server, folder: Path, log: Log, options: argparse.Namespace, end_s: float) -> Row:
    """Run the rounds of a case that are not in the log."""
    times = options.times if case.codes else options.healthy_times
    while True:
        row = Row(log.of(case.name, server.name), times, healthy=not case.codes)
        if row.missing <= 0 or row.repeated > _REPEATS * times or time.monotonic() > end_s:
            return row
        server.wait_until_idle()
        wait_until_quiet(options.quiet)
        log.add(_run_round(case, server, folder, log.next_seed(options.seed)))


def _run_round(case: Case, server: Server, folder: Path, seed: int) -> Outcome:
    outcome = Outcome(case=case.name, engine=server.name, healthy=not case.codes, seed=seed, result="not caused")
    try:
        found = case.run(server, folder, seed)
    except NotCaused:
        return outcome
    good = bool(case.codes & found.codes) if case.codes else not found.doubtful and found.exit_code == 0
    host = not good and only_the_host(found.doubtful)
    return msgspec.structs.replace(
        outcome,
        result="good" if good else "host" if host else "differs",
        session=found.directory.name,
        exit_code=found.exit_code,
        codes=tuple(sorted(case.codes & found.codes)) if case.codes else found.doubtful,
        doubtful=found.values,
        flags=found.flags,
        events=found.events,
    )


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
    names = tuple(case.name for case in CASES)
    parser.add_argument("--only", type=_names(names), default=list(names), metavar="NAME,…", help=", ".join(names))
    parser.add_argument("--times", type=int, default=10, help="counted runs of each fault")
    parser.add_argument("--healthy-times", type=int, default=20, help="counted healthy runs of each kind")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    parser.add_argument("--resume", action="store_true", help="count the runs of earlier calls with the same --dir")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="of the first run; the next is +1")
    parser.add_argument("--quiet", type=float, default=60.0, metavar="S", help="how long to wait for a quiet host")
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
    end_s = time.monotonic() + 60.0 * options.minutes
    cases = {case.name: case for case in CASES}
    log, bad = Log(folder / "rounds.jsonl", resume=options.resume), 0
    # Runs of other users of this machine are not to be joined by mistake; paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="swarmtui-") as runtime, open_servers(options, folder) as servers:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        for server in servers:
            write_workloads(server, folder / "workloads")
            for case in map(cases.__getitem__, options.only):
                if (case.needs_pid and server.pid is None) or (case.needs_restart and not server.restarts):
                    print(f"{case.name:17} {server.name:10} not applicable", flush=True)
                    continue
                started = time.monotonic()
                row = run_case(case, server, folder, log, options, end_s)
                bad += row.differs or row.missing > 0
                print(f"{case.name:17} {server.name:10} {row}   ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"\n{table(log.outcomes)}\n\n{bad} rows differ or lack runs; the runs are in {folder / 'sessions'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
