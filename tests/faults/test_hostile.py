"""Runs against a server that misbehaves: each such request ends with its error name, and no other is affected."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from swarmtui.model.endpoint import PATHS, Dialect
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import Sandbox
from tests.cli.scripted_server import ScriptedHandler, scripted_server
from tests.faults.fuzz_stream import run_request
from tests.faults.hostile import CASES, HEAVY, LONG_TIMEOUTS, TIMED, TIMEOUTS, WORDS, HostileServer
from tests.loadgen.driver import DrivenWorker, task

# 64 requests at once; unlike a closed loop, a batch sends no unmeasured requests.
BATCH = """
name = "batch"
kind = "prompts"
[[prompts]]
text = "Say something."
[load]
mode = "barrier"
levels = [64]
serial = "none"
"""

# Allowed error of converting the kernel's wall-clock stamps on a busy machine.
SLACK_NS = 1_000_000

# A worker needs about 20 MB, and the longest response that it accepts most of the rest.
MAX_BYTES = 200 << 20

# Dialects for limits on time and size: those of server-sent events, which four share, and of lines of JSON.
_FORMATS: tuple[Dialect, ...] = ("chat", "ollama")


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a process."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


def assert_healthy(record: Record) -> None:
    assert (record.error, record.tokens_out, record.chunks) == (None, WORDS, WORDS), record


def _header_of(size: int) -> list[bytes]:
    return [b"HTTP/1.1 503 No\r\nX: ", b"x" * size]


def _stream_of(*contents: str, choices: int = 1) -> list[bytes]:
    events = (
        b"data: " + msgspec.json.encode({"choices": [{"delta": {"content": content}}] * choices}) + b"\n\n"
        for content in contents
    )
    head, end = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b"data: [DONE]\n\n"
    data = b"".join((head, *events, end))
    return [data[at : at + (32 << 10)] for at in range(0, len(data), 32 << 10)]


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        (lambda: _header_of(250_000), lambda: _header_of(256 << 10)),
        (lambda: _stream_of("x" * 4_190_000), lambda: _stream_of("x" * 4_300_000)),
        (lambda: _stream_of(*["x" * (4_000 << 10)] * 8), lambda: _stream_of(*["x" * (4_000 << 10)] * 9)),
        (lambda: _stream_of(*"abcd", choices=1 << 16), lambda: _stream_of(*"abcde", choices=1 << 16)),
    ],
    ids=["256 KB of headers", "4 MB per event", "32 MB per answer", "262,144 chunks per answer"],
)
def test_bounds_of_a_response(accepted: Callable[[], list[bytes]], refused: Callable[[], list[bytes]]) -> None:
    """Every worker of the suite collects this test, but only one makes these responses."""
    assert run_request("chat", accepted()).error in (None, "closed_early")
    assert run_request("chat", refused()).error == "too_long"


@pytest.mark.parametrize(
    ("dialect", "cases", "limits"),
    [
        *((dialect, TIMED, TIMEOUTS) for dialect in _FORMATS),
        *((dialect, set(CASES) - TIMED, LONG_TIMEOUTS) for dialect in PATHS),
    ],
    ids=[*(f"{dialect}-timed" for dialect in _FORMATS), *(f"{dialect}-others" for dialect in PATHS)],
)
def test_error_name_and_memory_of_each_case(dialect: Dialect, cases: set[str], limits: Timeouts) -> None:
    """Healthy requests run at the same time; the heavy cases come one after the other."""
    heavy = sorted(cases & HEAVY) if dialect in _FORMATS else []
    light = sorted(cases - HEAVY)
    tasks = dict(enumerate([*light, *[""] * len(light), *heavy]))
    with (
        HostileServer() as server,
        DrivenWorker(server.url, timeouts=limits, dialect=dialect, forked=False) as worker,
    ):
        texts = {number: f"question {number} <{case}>" for number, case in tasks.items()}
        several = [task(number, text) for number, text in texts.items() if tasks[number] not in HEAVY]
        records = worker.run(several, agents=8)
        for number in (number for number, case in tasks.items() if case in HEAVY):
            records += worker.run([task(number, texts[number])])
        peak = peak_bytes(worker.pid)
    assert {record.task for record in records} == set(tasks)
    for record in records:
        case = tasks[record.task]
        if not case:
            assert_healthy(record)
        else:
            assert record.error == CASES[case].error, (case, record.error_detail)
            assert record.error is None or record.error_detail
    assert peak < MAX_BYTES


def test_run_with_all_cases_counts_errors_by_name(sandbox: Sandbox) -> None:
    """Errors are named in the journal and counted in the table; healthy streams are complete."""
    (sandbox.home / "batch.toml").write_text(BATCH)
    with HostileServer(set(CASES) - HEAVY, share=0.7, once=TIMED, seed=3) as server:
        ran = sandbox.run_benchmark(
            server.url, "--workload", str(sandbox.home / "batch.toml"), "--warmup", "none", "--seed", "1", "--json",
            "--timeout", "12s", "--idle-timeout", "5s", "--no-gpu",
        )  # fmt: skip
    assert ran.code == 0, ran
    records = read_journal(sandbox.session).records
    assert len(records) == len(server.cases) == 64
    expected = Counter(CASES[case].error if case else None for case in server.cases.values())
    assert Counter(record.error for record in records) == expected
    assert len(expected) >= 9
    (level,) = sandbox.show_session()["levels"]
    assert (level["n"], level["ok"]) == (64, expected[None])
    assert level["error_counts"] == {name: count for name, count in expected.items() if name}
    table = sandbox.run("sessions", "show", "last", "--session-dir", str(sandbox.sessions)).out
    assert all(f"{count} {name}" in table for name, count in level["error_counts"].items()), table
    tokens = Counter(record.tokens_out for record in records if record.ok)
    contradicting = sum(case == "usage contradicts" for case in server.cases.values())
    assert tokens == {WORDS: expected[None] - contradicting} | ({1: contradicting} if contradicting else {})


def test_stamps_stay_exact_beside_heavy_streams() -> None:
    """The worker is busy reading megabytes; kernel stamps still lie within the server's own times of sending."""
    cases = ("10 MB line", "endless stream", "endless headers", "split at each byte", "responds twice")
    with HostileServer(cases, share=0.4, seed=1) as server, DrivenWorker(server.url, timeouts=LONG_TIMEOUTS) as worker:
        records = worker.run([task(number) for number in range(40)], agents=10)
    served = Counter(server.case_of(f"question {record.task}") for record in records)
    assert len(served) == 6 and served[""] >= 15
    late = coalesced = 0
    for record in records:
        if not server.case_of(f"question {record.task}"):
            assert_healthy(record)
            assert record.stamp == "kernel"
            sent = server.sent_ns_of(f"question {record.task}")
            for stamp, (before, after) in zip(record.chunk_times_ns(), sent, strict=True):
                assert stamp >= before - SLACK_NS
                late += stamp > after + SLACK_NS
            # Words that are read together have the stamp of the last one, and the last word that of the end.
            coalesced += record.coalesced_chunks + 1
    assert late <= coalesced


def test_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with DrivenWorker(f"http://127.0.0.1:{port}", timeouts=TIMEOUTS) as worker:
        (record,) = worker.run([task(0)])
    assert (record.error, record.chunks) == ("refused", 0) and record.error_detail


def test_connection_limit_does_not_affect_accepted_requests() -> None:
    with HostileServer(share=0.0, limit=4) as server, DrivenWorker(server.url, timeouts=LONG_TIMEOUTS) as worker:
        records = worker.run([task(number) for number in range(24)], agents=8)
    assert server.rejected
    for record in records:
        if record.error is None:
            assert_healthy(record)
    assert {record.error for record in records} <= {None, "reset", "closed_early"}
    assert sum(record.ok for record in records) >= 4


def _endless(to: ScriptedHandler) -> None:
    to.send_response(200)
    to.send_header("content-type", "application/json")
    to.end_headers()
    while True:
        to.wfile.write(b"[" * 65536)


LISTINGS: dict[str, Callable[[ScriptedHandler], None]] = {
    "endless": _endless,
    "nested": lambda to: to.whole(200, b'{"data":' + b"[" * 100_000),
    "not UTF-8": lambda to: to.whole(200, b'{"data":[{"id":"\xff"}]}'),
    "lone surrogate": lambda to: to.whole(200, b'{"data":[{"id":"\\ud800"}]}'),
    "wrong types": lambda to: to.whole(200, b'{"data":[1,null,{"id":{}},[]],"models":7}'),
    "gzip of zeros": lambda to: to.whole(200, b"\x1f\x8b" + bytes(200)),
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_invalid_model_list_is_reported_in_one_line(sandbox: Sandbox, listing: str) -> None:
    def answer(to: ScriptedHandler) -> None:
        try:
            LISTINGS[listing](to)
        except OSError:
            to.close_connection = True

    with scripted_server(listing=answer) as server:
        ran = sandbox.run_benchmark(server.url, "--levels", "1", "--no-gpu")
    assert server.url in ran.error_line(3)
