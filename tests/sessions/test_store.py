from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from swarmtui.model.endpoint import Endpoint
from swarmtui.model.record import Record
from swarmtui.model.schema import BadInput
from swarmtui.model.session import Level, Request, Session, Summary, entry_encoder
from swarmtui.sessions.files import write_whole
from swarmtui.sessions.paths import is_id, new_id, sessions_root
from swarmtui.sessions.store import list_sessions, load, remove, summarise, summary_json, write_summary
from tests.sessions.made_sessions import T0, head, open_loop, record, whole, write

ID = "20261115-014455-3f9a"

CONDUCTOR = """
import sys
from pathlib import Path
from swarmtui.model.session import entry_decoder
from swarmtui.sessions.journal import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
for line in sys.stdin.buffer:
    if line == b"\\n":
        break
    writer.append(entry_decoder.decode(line))
print("written", flush=True)
sys.stdin.buffer.read()
"""


@contextmanager
def conductor(directory: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the journal with the first `count` entries of a session, as a conductor does."""
    with subprocess.Popen(
        [sys.executable, "-c", CONDUCTOR, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin and child.stdout
        for entry in whole(directory.name)[:count]:
            child.stdin.write(entry_encoder.encode(entry) + b"\n")
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"written\n"
        try:
            yield child
        finally:
            child.kill()


def test_ids_sort_by_time_wherever_the_clock_stands() -> None:
    start = datetime(2026, 11, 15, 1, 44, 55, tzinfo=UTC)
    ids = [new_id(start.astimezone(timezone(timedelta(hours=h))) + timedelta(seconds=h)) for h in range(-5, 6)]
    assert ids == sorted(ids)
    assert all(map(is_id, ids))
    assert new_id(start).startswith("20261115-014455-")
    assert len({new_id(start) for _ in range(20)}) > 10


def test_the_data_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sessions_root() == tmp_path / "swarmtui" / "sessions"


def test_running_while_the_conductor_lives_and_interrupted_when_it_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / ID
    with conductor(directory, 10) as child:
        (row,) = list_sessions(tmp_path)
        assert (row.state, summarise(load(tmp_path, ID)).state) == ("running", "running")
        assert write_summary(directory).state == "running"
        with pytest.raises(BadInput, match="is running"):
            remove(tmp_path, ID)
        child.kill()
        child.wait()
        (row,) = list_sessions(tmp_path)
        assert row.state == "interrupted"
    summary = write_summary(directory)
    assert summary.state == "interrupted"
    assert [(level.c, level.n, level.complete) for level in summary.levels] == [(1, 5, False)]
    (row,) = list_sessions(tmp_path)
    assert (row.state, row.requests, row.best_c) == ("interrupted", 5, 1)


def test_an_end_is_the_last_word_while_its_writer_still_saves(tmp_path: Path) -> None:
    with conductor(tmp_path / ID, 100):
        assert write_summary(tmp_path / ID).state == "done"
        assert [row.state for row in list_sessions(tmp_path)] == ["done"]


def test_the_files_hold_what_was_promised(tmp_path: Path) -> None:
    directory = write(tmp_path / ID, whole(label="before", tags={"gpu": "H200"}))
    summary = write_summary(directory)
    detail = json.loads((directory / "detail.json").read_bytes())

    assert (detail["schema"], detail["state"], detail["session"]["id"]) == (1, "done", ID)
    assert len(detail["requests"]) == 16
    first = detail["requests"][0]
    promised = (
        "id c run phase agent endpoint t_sched_ns t_sent_ns t_headers_ns t_first_ns t_first_content_ns t_last_ns "
        "t_done_ns stamp chunks tokens_in tokens_out cached_tokens token_source finish_reason error verdict"
    )
    assert set(promised.split()) <= set(first)
    assert not {"chunk_us", "chunk_tokens"} & set(first)
    assert (first["endpoint"], first["t_sched_ns"], first["t_sent_ns"]) == ("http://127.0.0.1:8000", None, T0)

    assert [level["c"] for level in detail["levels"]] == [1, 2]
    assert set(detail["levels"][0]) == set(Level.__struct_fields__)
    assert detail["levels"][0]["ttft_s"]["p99"] is None
    assert {k: v for k, v in detail.items() if k != "requests"} == json.loads(summary_json(summary))
    assert msgspec.json.decode(summary_json(summary), type=Summary) == summary

    person = tomllib.loads((directory / "summary.toml").read_text())
    assert (person["id"], person["state"], person["label"], person["tags"]) == (ID, "done", "before", {"gpu": "H200"})
    assert person["endpoints"][0]["model"] == "qwen3"
    assert person["plan"]["levels"] == [1, 2]
    assert person["levels"][1]["out_tps_steady"] == 142.857
    assert "p99" not in person["levels"][1]["ttft_s"]
    assert person["events"] == [{"at_s": 1.5, "name": "left_out", "detail": "the server refused stream_options"}]
    assert person["warmup_requests"] == summary.warmup_requests == 1


def test_written_twice_is_byte_equal_and_private(tmp_path: Path) -> None:
    directory = write(tmp_path / ID, whole(tags={"b": "1", "a": "2"}))
    write_summary(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    write_summary(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert sorted(before) == ["detail.json", "index.json", "journal.jsonl", "summary.toml"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.toml"
    write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["summary.toml"]
    assert path.read_bytes() == b"old"


WRITER = """
import os, signal, sys
from pathlib import Path
from swarmtui.sessions.files import write_parts

def parts():
    yield b"new " * 100_000
    os.kill(os.getpid(), signal.SIGKILL)

write_parts(Path(sys.argv[1]), parts())
"""


def test_a_writer_that_is_killed_in_the_middle_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "detail.json"
    write_whole(path, b"old")
    assert subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False).returncode == -9
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("detail.json", b"old")]


def test_a_file_system_without_nameless_files_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def simple(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", simple)
    path = tmp_path / "detail.json"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("detail.json", b"new")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_damage_is_told_among_the_events(tmp_path: Path) -> None:
    directory = write(tmp_path / ID, whole())
    with (directory / "journal.jsonl").open("ab") as file:
        file.write(b'{"torn')
    last = summarise(load(tmp_path, ID)).events[-1]
    assert (last.name, last.detail) == ("damaged", "1 line of the journal could not be read")


def test_a_request_of_an_endpoint_that_is_not_there_has_none(tmp_path: Path) -> None:
    directory = write(tmp_path / ID, [head(), Request(record=record(1, endpoint=3))])
    write_summary(directory)
    assert json.loads((directory / "detail.json").read_bytes())["requests"][0]["endpoint"] is None


def test_sessions_are_found_by_id_beginning_and_last(tmp_path: Path) -> None:
    names = ["20261114-120000-aaaa", "20261115-014455-3f9a", "20261115-020000-0001"]
    for name in names:
        write(tmp_path / name, [head(name)])
    (tmp_path / "zzz-not-ours").mkdir()
    assert load(tmp_path, names[0]).directory == tmp_path / names[0]
    assert load(tmp_path, "20261114").journal.head.session.id == names[0]
    assert load(tmp_path, "last").directory.name == names[2]
    assert load(tmp_path, "last~2").directory.name == names[0]
    with pytest.raises(BadInput, match="3 sessions in all"):
        load(tmp_path, "last~3")
    with pytest.raises(BadInput, match=re.escape(f"20261115: fits 2 sessions: {names[2]}, {names[1]}")):
        load(tmp_path, "20261115")
    for wrong in ("2027", "", "..", "../x", "/", names[0] + "/journal.jsonl"):
        with pytest.raises(BadInput, match="no session of that name"):
            load(tmp_path, wrong)
    with pytest.raises(BadInput, match="no session here yet"):
        load(tmp_path / "nowhere", "last")


def test_the_list_is_newest_first_and_a_stranger_is_a_row_with_its_problem(tmp_path: Path) -> None:
    done, running = "20261115-014455-3f9a", "20261115-020000-0001"
    write_summary(write(tmp_path / done, whole(label="A")))
    write(tmp_path / running, [head(running, endpoints=(Endpoint(url="u", model="m"), Endpoint(url="v", model="m")))])
    (tmp_path / "20261115-030000-0002").mkdir()
    (tmp_path / "20261115-040000-0003").mkdir()
    (tmp_path / "20261115-040000-0003" / "journal.jsonl").write_bytes(b"\x00\x00")
    (tmp_path / "20261115-050000-0004" / "journal.jsonl").mkdir(parents=True)
    (tmp_path / "holiday photos").mkdir()
    (tmp_path / "a file").write_text("")

    rows = list_sessions(tmp_path)
    assert [(row.id, row.state, row.problem) for row in rows] == [
        ("20261115-050000-0004", None, "journal.jsonl cannot be read: Is a directory"),
        ("20261115-040000-0003", None, "journal.jsonl has no readable first line"),
        ("20261115-030000-0002", None, "no journal.jsonl in it"),
        (running, "interrupted", None),
        (done, "done", None),
        ("holiday photos", None, "no journal.jsonl in it"),
    ]
    assert (rows[3].endpoint, rows[3].requests, rows[3].best_out_tps) == ("u +1", 0, None)
    assert (rows[4].label, rows[4].model, rows[4].levels, rows[4].requests) == ("A", "qwen3", (1, 2), 15)
    assert rows[4].best_c == 2
    assert rows[4].best_out_tps == pytest.approx(142.857, rel=1e-5)
    assert rows[4].directory == str(tmp_path / done)
    assert list_sessions(tmp_path / "nowhere") == []


def test_the_best_of_an_open_loop_is_what_came_of_a_rate(tmp_path: Path) -> None:
    write_summary(write(tmp_path / ID, open_loop(ID)))
    (row,) = list_sessions(tmp_path)
    assert row.best_at == "4/s"
    assert row.best_out_tps == pytest.approx(50 / 1.14), "five answers of ten tokens in 1.14 s"


@pytest.mark.parametrize("index", [b"", b"{}", b"\xff", b'{"schema":1,"journal_bytes":3,"row":{"id":"lies"}}'])
def test_an_index_that_does_not_fit_its_journal_is_not_believed(tmp_path: Path, index: bytes) -> None:
    directory = write(tmp_path / ID, whole())
    (directory / "index.json").write_bytes(index)
    (row,) = list_sessions(tmp_path)
    assert (row.id, row.state, row.model, row.requests) == (ID, "done", "qwen3", 15)


def test_two_thousand_sessions_are_listed_with_and_without_a_summary(tmp_path: Path) -> None:
    model = write(tmp_path / "20261115-000000-0000", whole())
    write_summary(model)
    journal, index = (model / "journal.jsonl").read_bytes(), (model / "index.json").read_bytes()
    for number in range(1, 2000):
        directory = tmp_path / f"20261115-000000-{number:04x}"
        directory.mkdir()
        (directory / "journal.jsonl").write_bytes(journal)
        if number % 10:
            (directory / "index.json").write_bytes(index)
    rows = list_sessions(tmp_path)
    assert [row.id for row in rows] == sorted((p.name for p in tmp_path.iterdir()), reverse=True)
    assert {row.state for row in rows} == {"done"}
    assert sum(row.best_c is None for row in rows) == 199


def test_removing_takes_one_session_and_nothing_else(tmp_path: Path) -> None:
    kept, gone = "20261115-014455-3f9a", "20261115-020000-0001"
    write(tmp_path / kept, whole(kept))
    write_summary(write(tmp_path / gone, whole(gone)))
    (tmp_path / "20261116-photos").mkdir()
    assert remove(tmp_path, "20261115-02") == tmp_path / gone
    assert sorted(p.name for p in tmp_path.iterdir()) == [kept, "20261116-photos"]
    for which, problem in (("20261116-photos", "not a session"), ("last", "no session"), ("..", "no session")):
        with pytest.raises(BadInput, match=problem):
            remove(tmp_path, which)
    assert (tmp_path / "20261116-photos").is_dir()


def test_what_an_older_swarmtui_wrote_is_read(tmp_path: Path) -> None:
    """Only the keys that every version had; what was added since has a default."""
    name = "20261115-014455-3f9a"
    path = write(tmp_path / name, whole(name)) / "journal.jsonl"
    older = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        for part, kind in (("session", Session), ("record", Record)):
            if part in entry:
                needed = {field.name for field in msgspec.structs.fields(kind) if field.required}
                kept = needed | {"stretch", "phase", "c", "run", "tokens_out", "token_source", "chunk_us", "chunks"}
                entry[part] = {key: value for key, value in entry[part].items() if key in kept or key.startswith("t_")}
        older.append(json.dumps({key: value for key, value in entry.items() if key not in ("load", "rate", "steered")}))
    path.write_text("\n".join(older) + "\n")
    levels = summarise(load(tmp_path, name)).levels
    assert [(level.c, level.ok) for level in levels] == [(1, 5), (2, 10)]
    (row,) = list_sessions(tmp_path)
    assert (row.id, row.state, row.problem) == (name, "done", None)
