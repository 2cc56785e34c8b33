from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.files import sessions_root, write_file
from swarmtui.model.base import SCHEMA_VERSION, BadInput
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import RequestEntry, entry_encoder
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Session, Summary
from swarmtui.report.charts import drawn_half_widths
from swarmtui.sessions import index as session_index
from swarmtui.sessions.documents import summary_json
from swarmtui.sessions.index import SessionRow, list_sessions, new_session_id
from swarmtui.sessions.store import ensure_summary, load_session, remove_session, summarise, write_summary
from tests.analysis.level_builders import level, summary
from tests.sessions.session_builders import (
    T0,
    full_session,
    head,
    journal_writer,
    open_loop_session,
    record,
    write_session,
)

ID = "20261115-014455-3f9a"


def test_ids_sort_by_time_in_any_time_zone() -> None:
    start = datetime(2026, 11, 15, 1, 44, 55, tzinfo=UTC)
    ids = [new_session_id(start.astimezone(timezone(timedelta(hours=h))) + timedelta(seconds=h)) for h in range(-5, 6)]
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", session) for session in ids)
    assert new_session_id(start).startswith("20261115-014455-")
    assert len({new_session_id(start) for _ in range(20)}) > 10
    soon = [new_session_id(start.replace(microsecond=100_000 * tenth)) for tenth in range(10)]
    assert soon == sorted(soon), "short runs of the same second keep their order, so that `last` is the last one"


def test_sessions_root_follows_xdg_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sessions_root() == tmp_path / "swarmtui" / "sessions"


def test_session_is_running_until_its_process_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / ID
    with journal_writer(directory, 10) as child:
        (row,) = list_sessions(tmp_path)
        assert (row.state, summarise(load_session(tmp_path, ID)).state) == ("running", "running")
        assert write_summary(directory).state == "running"
        with pytest.raises(BadInput, match="is running"):
            remove_session(tmp_path, ID)
        child.kill()
        child.wait()
        (row,) = list_sessions(tmp_path)
        assert row.state == "interrupted"
    summary = write_summary(directory)
    assert summary.state == "interrupted"
    assert [(level.c, level.n, level.complete) for level in summary.levels] == [(1, 5, False)]
    (row,) = list_sessions(tmp_path)
    assert (row.state, row.requests, row.best_c) == ("interrupted", 5, 1)


def test_end_entry_decides_the_state_while_locked(tmp_path: Path) -> None:
    with journal_writer(tmp_path / ID, 100):
        assert write_summary(tmp_path / ID).state == "done"
        assert [row.state for row in list_sessions(tmp_path)] == ["done"]


def test_saved_files_have_the_documented_fields(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session(label="before", tags={"gpu": "H200"}))
    summary = write_summary(directory)
    detail = json.loads((directory / "detail.json").read_bytes())

    assert (detail["schema"], detail["state"], detail["session"]["id"]) == (SCHEMA_VERSION, "done", ID)
    assert len(detail["requests"]) == 16
    first = detail["requests"][0]
    documented = (
        "id c run phase agent endpoint t_sched_ns t_sent_ns t_headers_ns t_first_ns t_first_content_ns t_last_ns "
        "t_done_ns stamp chunks tokens_in tokens_out cached_tokens token_source finish_reason error verdict"
    )
    assert set(documented.split()) <= set(first)
    assert not {"chunk_us", "chunk_tokens"} & set(first)
    assert (first["endpoint"], first["t_sched_ns"], first["t_sent_ns"]) == ("http://127.0.0.1:8000", None, T0)

    assert [level["c"] for level in detail["levels"]] == [1, 2]
    assert set(detail["levels"][0]) == set(Level.__struct_encode_fields__)
    assert detail["levels"][0]["ttft_s"]["p99"] is None
    assert {k: v for k, v in detail.items() if k != "requests"} == json.loads(summary_json(summary))
    assert msgspec.json.decode(summary_json(summary), type=Summary) == summary

    toml = tomllib.loads((directory / "summary.toml").read_text())
    assert (toml["id"], toml["state"], toml["label"], toml["tags"]) == (ID, "done", "before", {"gpu": "H200"})
    assert toml["endpoints"][0]["model"] == "qwen3"
    assert toml["plan"]["load"]["levels"] == [1, 2]
    assert toml["levels"][1]["out_tps_steady"] == 142.857
    assert "p99" not in toml["levels"][1]["ttft_s"]
    assert toml["events"] == [{"at_s": 1.5, "name": "left_out", "detail": "the server refused stream_options"}]
    assert toml["warmup_requests"] == summary.warmup_requests == 1


def test_summary_is_reproducible_and_private(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session(tags={"b": "1", "a": "2"}))
    write_summary(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    write_summary(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert sorted(before) == ["detail.json", "index.json", "journal.jsonl", "summary.toml"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.toml"
    write_file(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["summary.toml"]
    assert path.read_bytes() == b"old"


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from typing import Any
from swarmtui.files import write_parts

def parts():
    yield b"new " * 100_000
    os.kill(os.getpid(), signal.SIGKILL)

write_parts(Path(sys.argv[1]), parts())
"""


def test_killed_writer_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "detail.json"
    write_file(path, b"old")
    assert subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path)], check=False).returncode == -9
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("detail.json", b"old")]


def test_file_system_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def simple(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", simple)
    path = tmp_path / "detail.json"
    write_file(path, b"old")
    write_file(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("detail.json", b"new")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_damaged_lines_are_reported_as_an_event(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session())
    with (directory / "journal.jsonl").open("ab") as file:
        file.write(b'{"torn')
    last = summarise(load_session(tmp_path, ID)).events[-1]
    assert (last.name, last.detail) == ("damaged", "1 line of the journal could not be read")


def test_request_of_an_unknown_endpoint_has_none(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, [head(), RequestEntry(record=record(1, endpoint=3))])
    write_summary(directory)
    assert json.loads((directory / "detail.json").read_bytes())["requests"][0]["endpoint"] is None


def test_sessions_are_found_by_id_prefix_and_last(tmp_path: Path) -> None:
    names = ["20261114-120000-aaaa", "20261115-014455-3f9a", "20261115-020000-0001"]
    for name in names:
        write_session(tmp_path / name, [head(name)])
    (tmp_path / "zzz-other").mkdir()
    assert load_session(tmp_path, names[0]).directory == tmp_path / names[0]
    assert load_session(tmp_path, "20261114").journal.head.session.id == names[0]
    assert load_session(tmp_path, "3f9a").directory.name == names[1]
    assert load_session(tmp_path, "last").directory.name == names[2]
    with pytest.raises(BadInput, match="last~1 does not exist: 0 complete sessions"):
        load_session(tmp_path, "last~1")
    with pytest.raises(BadInput, match=re.escape(f"20261115: matches 2 sessions: {names[2]}, {names[1]}")):
        load_session(tmp_path, "20261115")
    for wrong in ("2027", "", "..", "../x", "/", names[0] + "/journal.jsonl"):
        with pytest.raises(BadInput, match="no session of that name"):
            load_session(tmp_path, wrong)
    with pytest.raises(BadInput, match="no sessions yet"):
        load_session(tmp_path / "nowhere", "last")


def save_copies(root: Path, heads: dict[str, dict[str, Any]]) -> None:
    """Save the recorded session several times, with another end or changes of its head; `plan` is added to its plan."""
    source = next((Path(__file__).parent / "recorded").iterdir())
    for name, changes in heads.items():
        directory = root / name
        shutil.copytree(source, directory)
        first, *rest = (directory / "journal.jsonl").read_bytes().splitlines()
        entry = json.loads(first)
        entry["session"] |= {"id": name, "simulated": False} | changes
        lines = rest if changes.get("complete", True) else rest[:-1]
        (directory / "journal.jsonl").write_bytes(b"\n".join([json.dumps(entry).encode(), *lines, b""]))
        write_summary(directory)


def test_before_the_last_are_complete_sessions_of_the_same_endpoint_and_kind(tmp_path: Path) -> None:
    first, *others = (f"20261115-00000{number}-aaaa" for number in range(6))
    save_copies(tmp_path, {first: {}})
    endpoints = json.loads((tmp_path / first / "detail.json").read_bytes())["session"]["endpoints"]
    elsewhere = [endpoints[0] | {"url": "http://127.0.0.1:9"}]
    changes: list[dict[str, Any]] = [
        {}, {"endpoints": elsewhere}, {"series": {"kind": "probe", "name": "x"}}, {"complete": False}, {},
    ]  # fmt: skip
    save_copies(tmp_path, dict(zip(others, changes, strict=True)))
    assert [load_session(tmp_path, name).directory.name for name in ("last", "last~1", "last~2")] == [
        others[4], others[0], first,
    ]  # fmt: skip
    write_session(tmp_path / "20261116-000000-bbbb", [head("20261116-000000-bbbb")])  # it measured nothing
    assert load_session(tmp_path, "last").directory.name == others[4]
    with pytest.raises(BadInput, match="last~3 does not exist: 2 complete sessions are of the same endpoint and kind"):
        load_session(tmp_path, "last~3")


def test_runs_of_an_experiment_are_the_last_session_only_if_there_are_no_others(tmp_path: Path) -> None:
    """They are one line of the list, and single ones say little."""
    own, a, b, tuned, probe = (f"20261115-00000{number}-aaaa" for number in range(5))
    ab, tune, probes = ({"series": {"kind": kind, "name": "x"}} for kind in ("ab", "tune", "probe"))
    save_copies(tmp_path, {a: ab, b: ab})
    assert [load_session(tmp_path, name).directory.name for name in ("last", "last~1")] == [b, a]
    save_copies(tmp_path, {own: {}, tuned: tune, probe: probes})
    assert load_session(tmp_path, "last").directory.name == own


def test_only_embedded_simulators_are_one_endpoint_whatever_their_address() -> None:
    served = SessionRow(id="a", endpoint="http://127.0.0.1:8000", model="m", simulated=True)
    embedded = msgspec.structs.replace(served, embedded=True)
    assert embedded.is_at("sim:moe-tp1", "m", True) and not embedded.is_at("sim:moe-tp1", "other", True)
    assert served.is_at("http://127.0.0.1:8000", "m", False)
    assert not served.is_at("sim:moe-tp1", "m", True), "a simulator that was started as a server is one"
    assert not served.is_at("http://127.0.0.1:9000", "m", False) and not embedded.is_at(served.endpoint, "m", False)


def test_list_is_newest_first_and_names_problems(tmp_path: Path) -> None:
    done, running = "20261115-014455-3f9a", "20261115-020000-0001"
    write_summary(write_session(tmp_path / done, full_session(label="A")))
    write_session(
        tmp_path / running, [head(running, endpoints=(Endpoint(url="u", model="m"), Endpoint(url="v", model="m")))]
    )
    (tmp_path / "20261115-030000-0002").mkdir()
    (tmp_path / "20261115-040000-0003").mkdir()
    (tmp_path / "20261115-040000-0003" / "journal.jsonl").write_bytes(b"\x00\x00")
    (tmp_path / "20261115-050000-0004" / "journal.jsonl").mkdir(parents=True)
    (tmp_path / "20261115-060000-0005").mkdir()
    (tmp_path / "20261115-060000-0005" / "journal.jsonl").write_bytes(b'{"kind":"session","session":{},"schema":3}\n')
    (tmp_path / "holiday photos").mkdir()
    (tmp_path / "a file").write_text("")

    rows = list_sessions(tmp_path)
    assert [(row.id, row.state, row.problem) for row in rows] == [
        (
            "20261115-060000-0005",
            None,
            "journal.jsonl: has schema 3, but this version reads schema 4; read it with the version that wrote it",
        ),
        ("20261115-050000-0004", None, "journal.jsonl cannot be read: Is a directory"),
        ("20261115-040000-0003", None, "journal.jsonl: has no readable first line"),
        ("20261115-030000-0002", None, "contains no journal.jsonl"),
        (running, "interrupted", None),
        (done, "done", None),
        ("holiday photos", None, "contains no journal.jsonl"),
    ]
    assert (rows[4].endpoint, rows[4].requests, rows[4].best_out_tps) == ("u +1", 0, None)
    assert (rows[5].label, rows[5].model, rows[5].levels, rows[5].requests) == ("A", "qwen3", (1, 2), 15)
    assert rows[5].best_c == 2
    assert rows[5].best_out_tps == pytest.approx(142.857, rel=1e-5)
    assert rows[5].directory == str(tmp_path / done)
    assert list_sessions(tmp_path / "nowhere") == []


def test_best_level_of_an_open_loop_is_a_rate(tmp_path: Path) -> None:
    write_summary(write_session(tmp_path / ID, open_loop_session(ID)))
    (row,) = list_sessions(tmp_path)
    assert row.best_at == "4/s"
    assert row.best_out_tps == pytest.approx(50 / 1.14), "five answers of ten tokens in 1.14 s"


@pytest.mark.parametrize("index", [b"", b"{}", b"\xff", b'{"schema":1,"journal_bytes":3,"row":{"id":"stale"}}'])
def test_stale_or_damaged_index_is_ignored(tmp_path: Path, index: bytes) -> None:
    directory = write_session(tmp_path / ID, full_session())
    (directory / "index.json").write_bytes(index)
    (row,) = list_sessions(tmp_path)
    assert (row.id, row.state, row.model, row.requests) == (ID, "done", "qwen3", 15)


def age(directory: Path) -> Path:
    """Make the journal as old as if the session had ended an hour ago."""
    past = time.time() - 3600
    os.utime(directory / "journal.jsonl", (past, past))
    return directory


def test_an_index_of_an_older_version_is_made_anew_from_the_summary(tmp_path: Path) -> None:
    """A field that it does not have yet, such as the doubt about a number, is not taken for its default."""
    directory = write_session(tmp_path / ID, full_session())
    write_summary(directory)
    (now,) = list_sessions(tmp_path)
    stored = json.loads((directory / "index.json").read_bytes())
    older = stored | {"schema": stored["schema"] - 1, "row": {"id": ID, "agents": 7}}
    (directory / "index.json").write_text(json.dumps(older))
    assert list_sessions(tmp_path) == [now]
    assert json.loads((directory / "index.json").read_bytes()) == stored


@pytest.mark.parametrize("damaged", [None, b"", b"{}", b"\xff"])
def test_an_index_that_was_lost_is_made_anew_from_the_summary(tmp_path: Path, damaged: bytes | None) -> None:
    """As after a copy of the session without it. The next listing does not read the summary."""
    directory = age(write_session(tmp_path / ID, full_session()))
    write_summary(directory)
    (now,) = list_sessions(tmp_path)
    index = directory / "index.json"
    stored = index.read_bytes()
    if damaged is None:
        index.unlink()
    else:
        index.write_bytes(damaged)
    assert list_sessions(tmp_path) == [now] and now.best_out_tps is not None and now.levels == (1, 2)
    assert index.read_bytes() == stored
    (directory / "detail.json").unlink()
    assert list_sessions(tmp_path) == [now]


def test_listing_writes_an_index_that_was_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next listing reads no journal for it; a summary replaces it."""
    directory = age(write_session(tmp_path / ID, full_session()[:-1]))
    (row,) = list_sessions(tmp_path)
    assert (row.state, row.requests, row.best_out_tps) == ("interrupted", 15, None)
    with monkeypatch.context() as patch:
        patch.setattr(session_index, "saved_records", None)
        assert list_sessions(tmp_path) == [row]
    ensure_summary(load_session(tmp_path, ID))
    assert (directory / "summary.toml").exists()
    assert list_sessions(tmp_path)[0].best_out_tps is not None


def test_index_without_summary_is_stale_after_a_spool_file_or_an_entry_was_added(tmp_path: Path) -> None:
    entries = full_session()[:-1]
    directory = age(write_session(tmp_path / ID, entries))
    assert list_sessions(tmp_path)[0].requests == 15
    late = entry_encoder.encode(RequestEntry(record=record(900, c=2, stage=2))) + b"\n"
    (directory / "spool-0.jsonl").write_bytes(late)
    assert list_sessions(tmp_path)[0].requests == 16
    with (directory / "journal.jsonl").open("ab") as journal:
        journal.write(entry_encoder.encode(full_session()[-1]) + b"\n")
    assert list_sessions(tmp_path)[0].state == "done"


def test_listing_leaves_the_index_to_a_session_that_just_ended(tmp_path: Path) -> None:
    directory = write_session(tmp_path / ID, full_session())
    assert list_sessions(tmp_path)[0].requests == 15
    assert not (directory / "index.json").exists()


def test_running_session_gets_no_index(tmp_path: Path) -> None:
    with journal_writer(tmp_path / ID, 5):
        age(tmp_path / ID)
        assert list_sessions(tmp_path)[0].state == "running"
        assert not (tmp_path / ID / "index.json").exists()


def test_sessions_that_cannot_be_written_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only file system: root may write to any directory."""
    directory = age(write_session(tmp_path / ID, full_session()))

    def refuse(path: Path, content: bytes, *, sync: bool = True) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(session_index, "write_file", refuse)
    for _ in range(2):
        (row,) = list_sessions(tmp_path)
        assert (row.state, row.requests, row.problem) == ("done", 15, None)
    assert not (directory / "index.json").exists()


def test_many_sessions_are_listed_with_and_without_summary(tmp_path: Path) -> None:
    model = write_session(tmp_path / "20261115-000000-0000", full_session())
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


def test_remove_deletes_one_session_only(tmp_path: Path) -> None:
    kept, gone = "20261115-014455-3f9a", "20261115-020000-0001"
    write_session(tmp_path / kept, full_session(kept))
    write_summary(write_session(tmp_path / gone, full_session(gone)))
    (tmp_path / "20261116-photos").mkdir()
    assert remove_session(tmp_path, "20261115-02") == tmp_path / gone
    assert sorted(p.name for p in tmp_path.iterdir()) == [kept, "20261116-photos"]
    for which, problem in (("20261116-photos", "not a session"), ("last", "no session"), ("..", "no session")):
        with pytest.raises(BadInput, match=problem):
            remove_session(tmp_path, which)
    assert (tmp_path / "20261116-photos").is_dir()


def test_sessions_of_older_versions_are_read(tmp_path: Path) -> None:
    """Keep only the keys that every version has written."""
    name = "20261115-014455-3f9a"
    path = write_session(tmp_path / name, full_session(name)) / "journal.jsonl"
    older = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        for part, kind in (("session", Session), ("record", Record)):
            if part in entry:
                needed = {field.name for field in msgspec.structs.fields(kind) if field.required}
                kept = needed | {"stage", "phase", "c", "run", "tokens_out", "token_source", "chunk_us", "chunks"}
                entry[part] = {key: value for key, value in entry[part].items() if key in kept or key.startswith("t_")}
        older.append(json.dumps({key: value for key, value in entry.items() if key not in ("load", "rate", "steered")}))
    path.write_text("\n".join(older) + "\n")
    levels = summarise(load_session(tmp_path, name)).levels
    assert [(level.c, level.ok) for level in levels] == [(1, 5), (2, 10)]
    (row,) = list_sessions(tmp_path)
    assert (row.id, row.state, row.problem) == (name, "done", None)


def test_the_list_knows_the_intervals_of_the_curve_of_a_result() -> None:
    """A level that was measured badly looks like a leap if its interval is not drawn."""
    levels = [level(1, tps=50, out_tps_steady_hw=5.0), level(2, tps=90), level(4, tps=None)]
    row = json.loads(session_index.index_json(summary(levels), 0))["row"]
    assert row["curve"] == [[1, 50], [2, 90]]
    assert row["curve_half_widths"] == [5.0, None]
    assert drawn_half_widths(row["curve_half_widths"]) == (5.0, 0.0)
    assert drawn_half_widths([None, None]) == ()
