"""What a client receives from a session, from the hello to the end."""

from __future__ import annotations

import socket
import stat
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.client.session_client import ConnectionLost, attach, running_sessions
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.load import Barrier, Open
from swarmtui.model.plan import Plan
from swarmtui.model.record import CANCELLED
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.replay import Replay
from swarmtui.sessions.store import load_session, summarise
from tests.cli.programs import wait_until
from tests.cli.scripted_server import respond_with_words, scripted_server
from tests.session_process.harness import OFTEN, SessionHarness, plan

SLOW = respond_with_words(5, gap_s=0.01)


def test_client_receives_hello_then_frames_then_end(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(1, 2), label="here")
        ended = session_client.wait_for_end()
    hello = session_client.wait_for_hello()
    assert (ended.ending, ended.message, ended.directory) == ("done", "", hello.directory)
    assert hello.session.label == "here" and hello.session.endpoints[0].url == server.url
    assert {1, 2} <= {frame.c for frame in session_client.frames}
    assert [frame.elapsed_s for frame in session_client.frames] == sorted(
        frame.elapsed_s for frame in session_client.frames
    )
    last = session_client.frames[-1]
    assert last.status == "ended" and last.finished == len(harness.journal(session_client).records)
    assert last.errors == 0
    assert [(level.c, level.n, level.complete) for level in last.levels] == [(1, 12, True), (2, 12, True)]
    saved = load_session(harness.sandbox.sessions, "last")
    on_disk, at_the_end = summarise(saved), Replay(saved).frame_at(1e9)
    assert last.levels == at_the_end.levels == on_disk.levels
    assert last.quality == at_the_end.quality == on_disk.quality
    assert last.answer == at_the_end.answer == on_disk.answer is not None
    assert all(frame.answer is None for frame in session_client.frames if frame.status != "ended")
    with pytest.raises(ConnectionLost):
        session_client.client.receive(5.0)


def test_second_client_attaches_and_leaves(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        first = harness.start(server.url, plan(2, requests=60))
        session = first.wait_for_hello().session.id
        first.wait_for_frame(lambda frame: frame.done > 0)
        assert running_sessions() == [session]
        leaving, staying = (
            harness.attach(session),
            harness.attach(session, client_protocol.Subscribe(hz=20.0, rows=True)),
        )
        assert leaving.wait_for_hello() == staying.wait_for_hello()
        leaving.client.close()
        assert {row.agent for row in staying.wait_for_frame(lambda frame: bool(frame.rows)).rows} <= {0, 1}
        assert staying.wait_for_end() == first.wait_for_end()
    assert first.frames[-1].levels[0].n == 60


def test_socket_is_private_and_removed_at_the_end(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(2, requests=30))
        path = harness.sandbox.runtime / "swarmtui" / f"{session_client.wait_for_hello().session.id}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        session_client.wait_for_end()
    session_client.client.close()
    assert not path.exists() and running_sessions() == []
    with pytest.raises(BadInput, match="cannot attach"):
        attach(path.stem, OFTEN)


def test_sockets_of_dead_sessions_are_removed(harness: SessionHarness) -> None:
    running_sessions()
    path = harness.sandbox.runtime / "swarmtui" / "20200101-000000-dead.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    assert path.exists()
    assert running_sessions() == []
    assert not path.exists()


def test_shared_socket_directory_is_refused(harness: SessionHarness) -> None:
    shared = harness.sandbox.runtime / "swarmtui"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    with pytest.raises(BadInput, match="must belong to you alone"):
        running_sessions()


def test_session_completes_if_its_client_never_reads(harness: SessionHarness) -> None:
    with scripted_server(respond_with_words(3)) as server:
        harness.start(server.url, plan(8, requests=200), client_protocol.Subscribe(hz=20.0, rows=True))
        (row,) = wait_until(
            lambda: [row for row in list_sessions(harness.sandbox.sessions) if row.requests], "the session is saved"
        )
    assert (row.state, row.requests) == ("done", 200)
    assert len(server.completed) >= 208, "with the pre-roll"


NONSENSE = (
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\xff" * 4096,
    struct.pack(">I", 5) + b"\xc1junk",
    struct.pack(">I", 1 << 20) + b"incomplete",
    struct.pack(">I", 0),
    b"",
)


def test_invalid_messages_do_not_disturb_the_session(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server, ExitStack() as connections:
        session_client = harness.start(server.url, plan(2, requests=40))
        path = harness.sandbox.runtime / "swarmtui" / f"{session_client.wait_for_hello().session.id}.sock"
        for nonsense in NONSENSE:
            connection = connections.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(path))
            connection.sendall(nonsense)
        assert session_client.wait_for_end().ending == "done"
    assert session_client.frames[-1].levels[0].n == 40


def test_two_sessions_run_independently(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        clients = [harness.start(server.url, plan(2, requests=40)) for _ in range(2)]
        sessions = {session_client.wait_for_hello().session.id for session_client in clients}
        assert len(sessions) == 2 and set(running_sessions()) == sessions
        ended = [session_client.wait_for_end() for session_client in clients]
    assert [end.ending for end in ended] == ["done", "done"]
    assert len({end.directory for end in ended}) == 2
    assert [session_client.frames[-1].levels[0].n for session_client in clients] == [40, 40]
    records = [record for session_client in clients for record in harness.journal(session_client).records]
    completed = {answer.id for answer in server.completed}
    assert {record.id for record in records if record.ok} <= completed <= {record.id for record in records}


def test_two_workers_share_the_streams(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(
            server.url, plan(5, requests=100, workers=2), client_protocol.Subscribe(hz=20.0, rows=True)
        )
        full = session_client.wait_for_frame(lambda frame: frame.in_flight == 5 and len(frame.rows) == 5)
        assert [row.agent for row in full.rows] == [0, 1, 2, 3, 4]
        assert session_client.wait_for_end().ending == "done"
    records = harness.journal(session_client).records
    completed = {answer.id for answer in server.completed}
    assert {record.id for record in records if record.ok} <= completed <= {record.id for record in records}
    assert {record.agent for record in records if record.phase == "preroll"} == {0, 1, 2, 3, 4}
    assert {record.agent for record in records if record.phase == "level"} == {0, 1, 2, 3, 4}
    assert len({record.task for record in records}) == len(records)
    assert sum(record.phase == "level" for record in records) == 100
    assert max(frame.in_flight for frame in session_client.frames) <= 5


@pytest.mark.parametrize("given", [{"requests": 24}, {"duration": "1s"}], ids=["requests", "duration"])
def test_closed_level_keeps_c_in_flight_around_the_measured_requests(
    harness: SessionHarness, given: dict[str, Any]
) -> None:
    with scripted_server(respond_with_words(6, gap_s=0.02)) as server:
        session_client = harness.start(server.url, plan(3, workers=2, **given))
        assert session_client.wait_for_end().ending == "done"
    journal = harness.journal(session_client)
    by_phase = {name: [r for r in journal.records if r.phase == name] for name in ("preroll", "level", "filler")}
    assert len(by_phase["preroll"]) >= 3 and all(r.ok for r in (*by_phase["preroll"], *by_phase["level"]))
    sent = sorted(r.t_sent_ns or 0 for r in by_phase["level"])
    ended = max(r.t_done_ns or 0 for r in by_phase["level"])
    begun = sorted(r.t_first_ns or 0 for r in by_phase["preroll"])
    assert begun[2] < sent[0], "all streams have shown a first token"
    cut = [r for r in by_phase["filler"] if r.error is not None]
    assert cut and {r.error for r in cut} == {CANCELLED}
    assert all((r.t_done_ns or 0) >= ended for r in cut), "fillers run until the last measured answer"
    (level,) = session_client.frames[-1].levels
    assert (level.n, level.errors, level.unfinished, level.complete) == (len(by_phase["level"]), 0, 0, True)
    assert level.c_held is not None and level.c_held > 0.9 * 3
    if "duration" in given:
        assert 0.5e9 < sent[-1] - sent[0] < 5e9, "tasks that were queued when the time was up are not measured"
        assert journal.ends[0].complete


def test_level_whose_agents_wait_for_a_slot_has_an_answer_at_its_end(harness: SessionHarness) -> None:
    """The first measured request waits for all the others, which is longer than the level is to last."""
    short = msgspec.structs.replace(plan(8, requests=None, complete=False, duration="2s"), max_tokens=64)
    session_client = harness.start("sim:moe-tp1?slots=1", short)
    assert session_client.wait_for_end().ending == "done"
    (level,) = session_client.frames[-1].levels
    assert level.ok >= 1 and level.headline_tps is not None and level.complete


@pytest.mark.parametrize("given", [{"requests": 9}, {"duration": "1s"}], ids=["requests", "duration"])
def test_level_ends_with_its_window_and_cancels_the_rest(harness: SessionHarness, given: dict[str, Any]) -> None:
    with scripted_server(respond_with_words(10, gap_s=0.02)) as server:
        chosen = {"requests": None, "complete": False} | given
        session_client = harness.start(server.url, plan(1, 3, workers=2, **chosen))
        assert session_client.wait_for_end().ending == "done"
    records = [record for record in harness.journal(session_client).records if record.c == 3]
    finished, unfinished = ([r for r in records if r.phase == phase] for phase in ("level", "unfinished"))
    assert all(r.ok for r in finished) and {r.error for r in unfinished} <= {CANCELLED}
    alone, level = session_client.frames[-1].levels
    assert (level.n, level.unfinished, level.errors) == (len(finished), len(unfinished), 0)
    assert alone.complete and level.complete
    assert (level.half_width is None) == any(flag.code == "synchronised" for flag in level.flags)
    sends = sorted(r.t_sent_ns or 0 for r in (*finished, *unfinished))
    if "requests" in given:
        assert len(sends) == 9 and len(finished) >= 7, "of three in flight at the end one is a filler"
        assert (alone.n, alone.unfinished) == (9, 0)
        sends.append(min(r.t_sent_ns or 0 for r in records if r.phase == "filler"))
    else:
        sends = sends[: (len(sends) - 1) // 3 * 3 + 1]
    assert level.steady_s == pytest.approx((sends[-1] - sends[0]) / 1e9), "whole cycles"
    assert all(frame.of is None or frame.done <= frame.of for frame in session_client.frames)


def test_last_frame_is_that_of_the_level_and_not_of_its_serial_baseline(harness: SessionHarness) -> None:
    """The tiles show the last level at the end."""
    with scripted_server(respond_with_words(2, gap_s=0.0)) as server:
        session_client = harness.start(server.url, Plan(load=Barrier(levels=(1, 2), warmup=0)))
        assert session_client.wait_for_end().ending == "done"
    assert harness.journal(session_client).stages[-1].phase == "serial"
    last = session_client.frames[-1]
    assert [level.c for level in last.levels] == [1, 2] and last.c == 2


def test_planned_levels_of_an_open_loop_are_its_rates(harness: SessionHarness) -> None:
    with scripted_server(respond_with_words(2, gap_s=0.0)) as server:
        session_client = harness.start(server.url, Plan(load=Open(rate=(40.0, 80.0), requests=4, warmup=0)))
        assert session_client.wait_for_end().ending == "done"
    assert {frame.planned for frame in session_client.frames if frame.levels} == {(40.0, 80.0)}


def test_end_says_why_the_endpoint_is_unusable(harness: SessionHarness) -> None:
    session_client = harness.start("http://127.0.0.1:9", plan(1))
    ended = session_client.wait_for_end()
    assert (ended.ending, ended.directory) == ("unusable", "") and "cannot connect" in ended.message
    assert session_client.hello is None and not list(Path(harness.sandbox.sessions).iterdir())


def test_no_process_and_no_spool_file_is_left_at_the_end(harness: SessionHarness) -> None:
    with scripted_server(SLOW) as server:
        session_client = harness.start(server.url, plan(4, requests=20, workers=2))
        ended = session_client.wait_for_end()
    session_client.client.close()
    assert harness.sandbox.processes() == []
    names = sorted(path.name for path in Path(ended.directory).iterdir())
    assert names == ["detail.json", "index.json", "journal.jsonl", "summary.toml"]
