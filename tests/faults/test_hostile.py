"""A server that does everything wrong to some requests: each of them ends under its name, and no other notices."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import Place
from tests.cli.scripted import Answering, scripted
from tests.faults.hostile import CASES, WORDS, HostileServer
from tests.loadgen.driver import DrivenWorker, task

LIMITS = Timeouts(connect=2.0, first_token=1.0, idle=1.0, total=15.0)

# What is too long is found so by its size, and a slow machine takes its time to read that much.
PATIENT = Timeouts(connect=2.0, first_token=12.0, idle=5.0, total=15.0)
HEAVY = {"endless stream", "10 MB line in bytes"}

# A word's way through the kernel takes microseconds; a worker that has others to read takes as long as it takes.
MOST_LATE_NS = 2_000_000

# What a worker takes before its first request is about 20 MB; the longest answer that it keeps is in the rest.
MOST_BYTES = 200 << 20


def peak_bytes(pid: int) -> int:
    """The largest memory that a process ever had."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


def as_it_should_be(record: Record) -> None:
    """A healthy stream: whole, and exactly counted."""
    assert (record.error, record.tokens_out, record.chunks) == (None, WORDS, WORDS), record


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_name_and_fills_no_memory(case: str) -> None:
    """Beside it runs a request that is answered well."""
    limits = PATIENT if CASES[case].error == "too_long" else LIMITS
    heavy = case in HEAVY
    share, requests = (1.0, 1) if heavy else (0.5, 4)
    with HostileServer([case], share) as server, DrivenWorker(server.url, timeouts=limits) as worker:
        records = worker.run([task(number) for number in range(requests)], agents=3)
        peak = peak_bytes(worker.pid)
    fates = [server.fate_of(f"question {record.task}") for record in records]
    assert set(fates) == ({case} if heavy else {"", case})
    for record, fate in zip(records, fates, strict=True):
        if not fate:
            as_it_should_be(record)
        else:
            assert record.error == CASES[case].error, record.error_detail
            assert record.error is None or record.error_detail
            # Ended by what is wrong with it, or by the limit of its kind, long before the last of all limits.
            assert record.t_done_ns is not None and record.t_sent_ns is not None
            assert record.t_done_ns - record.t_sent_ns < limits.total * 1e9
    assert peak < MOST_BYTES


def test_all_cases_at_once_are_counted_by_name_and_the_rest_is_exact(place: Place) -> None:
    """As a whole run sees it: the journal names each, the table counts them, healthy streams lose nothing."""
    with HostileServer(set(CASES) - HEAVY, share=0.5, seed=3) as server:
        ran = place.measure(
            server.url, "--levels", "32", "--requests", "160", "--warmup", "none", "--seed", "1", "--json",
            "--timeout", "3s", "--idle-timeout", "1s", "--no-gpu",
        )  # fmt: skip
    assert ran.code == 0, ran
    records = read_journal(place.session).records
    assert len(records) == len(server.fates) == 160
    expected = Counter(CASES[fate].error if fate else None for fate in server.fates.values())
    assert Counter(record.error for record in records) == expected
    assert len(expected) >= 9
    (level,) = place.shown()["levels"]
    assert (level["n"], level["ok"]) == (160, expected[None])
    assert level["error_counts"] == {name: count for name, count in expected.items() if name}
    table = place.run("sessions", "show", "last", "--session-dir", str(place.sessions)).out
    assert all(f"{name} {count}" in table for name, count in level["error_counts"].items()), table
    told = Counter(record.tokens_out for record in records if record.ok)
    contradicting = sum(fate == "usage contradicts" for fate in server.fates.values())
    assert told == {WORDS: expected[None] - contradicting} | ({1: contradicting} if contradicting else {})


def test_beside_the_worst_of_them_stamps_stay_where_they_were() -> None:
    """The worker is busy with megabytes that others send; when a word came is still known as well as before."""
    worst = ("10 MB line", "endless stream", "endless headers", "split at each byte", "answers twice", "dribbles")
    with HostileServer(worst, share=0.4, seed=1) as server, DrivenWorker(server.url, timeouts=LIMITS) as worker:
        records = worker.run([task(number) for number in range(40)], agents=10)
    met = Counter(server.fate_of(f"question {record.task}") for record in records)
    assert len(met) >= 6 and met[""] >= 15
    late: list[int] = []
    shared = 0
    for record in records:
        if not server.fate_of(f"question {record.task}"):
            as_it_should_be(record)
            assert record.stamp == "kernel"
            sent = server.sent_to(f"question {record.task}")
            late += [ours - theirs for ours, theirs in zip(record.chunk_times_ns(), sent, strict=True)]
            shared += record.shared_reads
    assert median(late) < MOST_LATE_NS
    # Two words that met in one read have the stamp of the later one, and are counted for it.
    assert sum(nanoseconds > MOST_LATE_NS for nanoseconds in late) <= shared + len(late) // 20


def test_a_server_that_refuses_is_named_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with DrivenWorker(f"http://127.0.0.1:{port}", timeouts=LIMITS) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.chunks) == ("refused", 0) and record.error_detail


def test_a_connection_limit_turns_some_away_and_harms_no_other() -> None:
    with HostileServer(share=0.0, limit=4) as server, DrivenWorker(server.url, timeouts=LIMITS) as worker:
        records = worker.run([task(number) for number in range(24)], agents=8)
    assert server.turned_away
    for record in records:
        if record.error is None:
            as_it_should_be(record)
    assert {record.error for record in records} <= {None, "reset", "closed_early"}
    assert sum(record.ok for record in records) >= 4


def _endless(to: Answering) -> None:
    to.send_response(200)
    to.send_header("content-type", "application/json")
    to.end_headers()
    while True:
        to.wfile.write(b"[" * 65536)


LISTINGS: dict[str, Callable[[Answering], None]] = {
    "endless": _endless,
    "nested": lambda to: to.whole(200, b'{"data":' + b"[" * 100_000),
    "not UTF-8": lambda to: to.whole(200, b'{"data":[{"id":"\xff"}]}'),
    "of something else": lambda to: to.whole(200, b'{"data":[1,null,{"id":{}},[]],"models":7}'),
    "gzip of zeros": lambda to: to.whole(200, b"\x1f\x8b" + bytes(200)),
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_list_of_models_that_is_none_is_told_in_one_line(place: Place, listing: str) -> None:
    def answer(to: Answering) -> None:
        try:
            LISTINGS[listing](to)
        except OSError:
            to.close_connection = True

    with scripted(listing=answer) as server:
        ran = place.measure(server.url, "--levels", "1", "--no-gpu")
    assert server.url in ran.refused(3)
