"""What a face hears of a session, from its first word to its last."""

from __future__ import annotations

import socket
import stat
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from swarmtui.client import client
from swarmtui.model import client_protocol as said
from swarmtui.model.schema import BadInput
from swarmtui.sessions.store import list_sessions, load, summarise
from tests.cli.programs import until
from tests.cli.scripted import scripted, words
from tests.session_process.watching import OFTEN, Stage, plan

SLOW = words(5, gap_s=0.01)


def test_hello_then_frames_then_the_end(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(1, 2), label="here")
        ended = face.to_the_end()
    hello = face.known()
    assert (ended.ending, ended.message, ended.directory) == ("done", "", hello.directory)
    assert hello.session.label == "here" and hello.session.endpoints[0].url == server.url
    assert {1, 2} <= {frame.c for frame in face.frames}
    assert [frame.elapsed_s for frame in face.frames] == sorted(frame.elapsed_s for frame in face.frames)
    last = face.frames[-1]
    assert last.status == "ended" and last.finished == 24 and last.errors == 0
    assert [(level.c, level.n, level.complete) for level in last.levels] == [(1, 12, True), (2, 12, True)]
    on_disk = summarise(load(stage.place.sessions, "last")).levels
    for shown, saved in zip(last.levels, on_disk, strict=True):
        for name in ("c", "n", "out_tps_steady", "out_tps_wall", "per_stream_tps", "ttft_s", "e2e_s", "contention"):
            assert getattr(shown, name) == getattr(saved, name), name
    with pytest.raises(client.Gone):
        face.client.next(5.0)


def test_a_second_face_joins_a_running_session_and_leaves_it(stage: Stage) -> None:
    with scripted(SLOW) as server:
        first = stage.start(server.url, plan(2, requests=60))
        session = first.known().session.id
        first.until(lambda frame: frame.done > 0)
        assert client.running() == [session]
        leaving, staying = stage.attach(session), stage.attach(session, said.Subscribe(hz=20.0, rows=True))
        assert leaving.known() == staying.known()
        leaving.client.close()
        assert {row.agent for row in staying.until(lambda frame: bool(frame.rows)).rows} <= {0, 1}
        assert staying.to_the_end() == first.to_the_end()
    assert first.frames[-1].levels[0].n == 60


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_session(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(2, requests=30))
        path = stage.place.runtime / "swarmtui" / f"{face.known().session.id}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        face.to_the_end()
    face.client.close()
    assert not path.exists() and client.running() == []
    with pytest.raises(BadInput, match="cannot join it"):
        client.attach(path.stem, OFTEN)


def test_sockets_of_the_dead_are_cleared_away(stage: Stage) -> None:
    client.running()
    path = stage.place.runtime / "swarmtui" / "20200101-000000-dead.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    assert path.exists()
    assert client.running() == []
    assert not path.exists()


def test_a_directory_for_sockets_that_others_can_enter_is_refused(stage: Stage) -> None:
    shared = stage.place.runtime / "swarmtui"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    with pytest.raises(BadInput, match="must belong to you alone"):
        client.running()


def test_the_face_that_started_it_need_not_listen(stage: Stage) -> None:
    """It never reads a byte: the run goes on to its end, and is saved."""
    with scripted(words(3)) as server:
        stage.start(server.url, plan(8, requests=200), said.Subscribe(hz=20.0, rows=True))
        (row,) = until(lambda: [row for row in list_sessions(stage.place.sessions) if row.requests], "it is saved")
    assert (row.state, row.requests) == ("done", 200)
    assert len(server.completed) == 200


NONSENSE = (
    b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"\xff" * 4096,
    struct.pack(">I", 5) + b"\xc1junk",
    struct.pack(">I", 1 << 20) + b"never the rest",
    struct.pack(">I", 0),
    b"",
)


def test_strangers_do_no_harm(stage: Stage) -> None:
    with scripted(SLOW) as server, ExitStack() as strangers:
        face = stage.start(server.url, plan(2, requests=40))
        path = stage.place.runtime / "swarmtui" / f"{face.known().session.id}.sock"
        for nonsense in NONSENSE:
            stranger = strangers.enter_context(socket.socket(socket.AF_UNIX))
            stranger.connect(str(path))
            stranger.sendall(nonsense)
        assert face.to_the_end().ending == "done"
    assert face.frames[-1].levels[0].n == 40


def test_two_sessions_at_once_do_not_know_each_other(stage: Stage) -> None:
    with scripted(SLOW) as server:
        faces = [stage.start(server.url, plan(2, requests=40)) for _ in range(2)]
        sessions = {face.known().session.id for face in faces}
        assert len(sessions) == 2 and set(client.running()) == sessions
        ended = [face.to_the_end() for face in faces]
    assert [end.ending for end in ended] == ["done", "done"]
    assert len({end.directory for end in ended}) == 2
    assert [face.frames[-1].levels[0].n for face in faces] == [40, 40]
    assert len(server.completed) == 80


def test_two_workers_are_one_swarm(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(5, requests=100, workers=2), said.Subscribe(hz=20.0, rows=True))
        full = face.until(lambda frame: frame.in_flight == 5 and len(frame.rows) == 5)
        assert [row.agent for row in full.rows] == [0, 1, 2, 3, 4]
        assert face.to_the_end().ending == "done"
    journal = stage.journal(face)
    assert {record.id for record in journal.records} == {answer.id for answer in server.completed}
    assert {record.agent for record in journal.records} == {0, 1, 2, 3, 4}
    assert len({record.task for record in journal.records}) == 100
    assert max(frame.in_flight for frame in face.frames) <= 5


def test_an_endpoint_that_cannot_be_used_is_said_in_the_last_word(stage: Stage) -> None:
    face = stage.start("http://127.0.0.1:9", plan(1))
    ended = face.to_the_end()
    assert (ended.ending, ended.directory) == ("unusable", "") and "cannot connect" in ended.message
    assert face.hello is None and not list(Path(stage.place.sessions).iterdir())


def test_no_process_stays_and_no_spool_is_left_after_a_good_end(stage: Stage) -> None:
    with scripted(SLOW) as server:
        face = stage.start(server.url, plan(4, requests=20, workers=2))
        ended = face.to_the_end()
    face.client.close()
    assert stage.place.processes() == []
    names = sorted(path.name for path in Path(ended.directory).iterdir())
    assert names == ["detail.json", "index.json", "journal.jsonl", "summary.toml"]
