from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarmtui.model.base import SCHEMA_VERSION, BadInput
from swarmtui.model.journal import End, Head, QualityEntry, RequestEntry, TokenCount, entry_encoder
from swarmtui.model.record import Record
from swarmtui.model.session import Event
from swarmtui.model.telemetry import QualityFacts
from swarmtui.sessions.journal import JournalWriter, is_running, read_journal
from tests.sessions.session_builders import T0, full_session, head, record, write_session


def spool(directory: Path, name: str, records: list[Record]) -> None:
    lines = [entry_encoder.encode(RequestEntry(record=one)) for one in records]
    (directory / name).write_bytes(b"".join(line + b"\n" for line in lines))


def test_entries_round_trip(tmp_path: Path) -> None:
    entries = full_session()
    journal = read_journal(write_session(tmp_path / "s", entries))
    assert journal.head == entries[0]
    assert list(journal.records) == [entry.record for entry in entries if isinstance(entry, RequestEntry)]
    assert [stage.number for stage in journal.stages] == [0, 1, 2]
    assert [end.number for end in journal.ends] == [0, 1, 2]
    assert [event.name for event in journal.events] == ["left_out"]
    assert journal.end == entries[-1]
    assert journal.damaged_lines == 0


def test_journal_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        directory = write_session(tmp_path / "data" / "s", [head()])
    finally:
        os.umask(old)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "journal.jsonl").stat().st_mode) == 0o600


def test_torn_last_line_loses_only_that_line(tmp_path: Path) -> None:
    directory = write_session(tmp_path / "s", [head(), RequestEntry(record=record(1)), RequestEntry(record=record(2))])
    path = directory / "journal.jsonl"
    text = path.read_bytes()
    for cut in (1, 2, 40, 200):
        path.write_bytes(text[:-cut])
        journal = read_journal(directory)
        whole_lines = 2 if cut == 1 else 1
        assert [r.task for r in journal.records] == [1, 2][:whole_lines]
        assert journal.damaged_lines == 2 - whole_lines
    assert read_journal(directory).end is None


def test_damaged_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    directory = write_session(tmp_path / "s", [head(), *(RequestEntry(record=record(task)) for task in range(4))])
    path = directory / "journal.jsonl"
    lines = path.read_bytes().splitlines()
    lines[2] = b"\x00" * 50
    lines[3] = b'{"kind":"event","t_ns":1,"name":"\xff\xfe"}'
    lines.insert(4, b'{"kind":"of_a_newer_version"}')
    path.write_bytes(b"\n".join(lines) + b"\n")
    journal = read_journal(directory)
    assert [r.task for r in journal.records] == [0, 3]
    assert journal.damaged_lines == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 3000))
def test_damage_after_the_head_never_raises(tmp_path: Path, junk: bytes, position: int) -> None:
    first, *rest = (entry_encoder.encode(entry) + b"\n" for entry in full_session())
    body = b"".join(rest)
    (tmp_path / "journal.jsonl").write_bytes(first + body[:position] + junk + body[position + len(junk) :])
    assert len(read_journal(tmp_path).records) >= 16 - 2 - junk.count(b"\n")


@pytest.mark.parametrize("text", [b"", b"\n\n", b"{", b'{"kind":"event","t_ns":1,"name":"a"}\n'])
def test_journal_without_head_is_rejected(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(text)
    with pytest.raises(BadInput, match=r"journal\.jsonl: has no readable first line"):
        read_journal(tmp_path)


def test_missing_journal_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_journal(tmp_path)


@pytest.mark.parametrize(("schema", "advice"), [(99, "update swarmtui"), (3, "read it with the version that wrote it")])
def test_journal_of_another_schema_is_rejected(tmp_path: Path, schema: int, advice: str) -> None:
    write_session(tmp_path / "s", [Head(session=head().session, pid=1, schema=schema)])
    with pytest.raises(BadInput, match=f"has schema {schema}, but .* reads schema {SCHEMA_VERSION}; {advice}"):
        read_journal(tmp_path / "s")


def test_head_of_another_schema_need_not_be_readable_to_be_recognised(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"kind":"session","session":{"of":"another"},"schema":3}\n')
    with pytest.raises(BadInput, match="has schema 3"):
        read_journal(tmp_path)


def test_spooled_records_are_merged_once(tmp_path: Path) -> None:
    directory = write_session(tmp_path / "s", [head(), RequestEntry(record=record(1)), RequestEntry(record=record(2))])
    spool(directory, "spool-0.jsonl", [record(2), record(3)])
    spool(directory, "spool-1.jsonl", [record(3), record(4)])
    with (directory / "spool-1.jsonl").open("ab") as file:
        file.write(b'{"kind":"request","record":{"task":')
    journal = read_journal(directory)
    assert [r.task for r in journal.records] == [1, 2, 3, 4]
    assert journal.damaged_lines == 1


def test_merge_keeps_the_first_of_duplicate_records(tmp_path: Path) -> None:
    """The journal comes before spool files, and spool files come in order of their names."""
    first, again = record(1, id="journal"), record(1, id="repeated")
    directory = write_session(tmp_path / "s", [head(), RequestEntry(record=first), RequestEntry(record=again)])
    spool(directory, "spool-1.jsonl", [record(1, id="spool-1"), record(2, id="spool-1")])
    spool(directory, "spool-0.jsonl", [record(2, id="spool-0"), record(1, id="spool-0")])
    assert [(r.task, r.id) for r in read_journal(directory).records] == [(1, "journal"), (2, "spool-0")]


def test_same_task_in_another_stage_or_turn_is_another_request(tmp_path: Path) -> None:
    records = [record(1, stage=0, phase="warmup"), record(1), record(1, turn=1)]
    directory = write_session(tmp_path / "s", [head(), *(RequestEntry(record=r) for r in records)])
    assert list(read_journal(directory).records) == records


def test_line_after_a_failed_write_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after 20 bytes, and has room again afterwards."""
    writer = JournalWriter(tmp_path / "s")
    writer.append(entry_encoder.encode(head()))
    real, calls = os.write, []

    def short_then_full(fd: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, data[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short_then_full)
        with pytest.raises(OSError, match="No space left"):
            writer.append(entry_encoder.encode(RequestEntry(record=record(1))))
    writer.append(entry_encoder.encode(RequestEntry(record=record(2))))
    writer.sync()
    writer.close()
    journal = read_journal(tmp_path / "s")
    assert [r.task for r in journal.records] == [2]
    assert journal.damaged_lines == 1


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    directory = write_session(tmp_path / "s", [head(), Event(t_ns=T0, name="pause"), End(t_ns=T0, state="stopped")])
    journal = read_journal(directory)
    assert (len(journal.events), journal.damaged_lines) == (1, 0)
    assert journal.end is not None


def test_existing_journal_is_not_opened_for_writing(tmp_path: Path) -> None:
    write_session(tmp_path / "s", [head()])
    with pytest.raises(FileExistsError):
        JournalWriter(tmp_path / "s")


def test_session_is_running_while_the_writer_is_open(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "s")
    assert is_running(tmp_path / "s")
    writer.close()
    assert not is_running(tmp_path / "s")


def test_recounted_tokens_replace_the_reported_ones(tmp_path: Path) -> None:
    """The first chunk gets an even share of them, and at least one."""
    records = [record(n, chunks=chunks) for n, chunks in enumerate((10, 10, 0))]
    counts = [TokenCount(stage=1, task=n, turn=0, tokens_out=tokens) for n, tokens in enumerate((46, 3, 3))]
    directory = write_session(tmp_path / "s", [head(), *(RequestEntry(record=r) for r in records), *counts])
    found = read_journal(directory).records
    assert [(r.tokens_out, r.token_source, r.first_tokens) for r in found] == [
        (46, "tokenize", 5),
        (3, "tokenize", 1),
        (3, "tokenize", None),
    ]


def test_line_after_the_copy_of_a_cut_one_is_complete(tmp_path: Path) -> None:
    writer, copy = JournalWriter(tmp_path / "s"), JournalWriter(tmp_path / "t")
    writer.append(entry_encoder.encode(head()))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space left"):
        real, room = os.write, [20]

        def cut(fd: int, data: bytes) -> int:
            if not room:
                raise OSError(28, "No space left on device")
            return real(fd, data[: room.pop()])

        patch.setattr(os, "write", cut)
        writer.append(entry_encoder.encode(RequestEntry(record=record(1))))
    copy.copy(writer)
    copy.append(entry_encoder.encode(RequestEntry(record=record(2))))
    for one in (writer, copy):
        one.close()
    journal = read_journal(tmp_path / "t")
    assert ([r.task for r in journal.records], journal.damaged_lines) == ([2], 1)


def test_last_quality_entry_and_last_end_count(tmp_path: Path) -> None:
    judged = [QualityEntry(lines=(), facts=QualityFacts(c=c)) for c in (1, 2)]
    ends = [End(t_ns=T0, state="stopped"), End(t_ns=T0, state="done")]
    journal = read_journal(write_session(tmp_path / "s", [head(), *judged, *ends]))
    assert (journal.quality, journal.end) == (judged[1], ends[1])
