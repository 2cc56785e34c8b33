"""Memory and journal of a long run are bounded, and its figures are the same as those of a short one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.model.journal import CapacitySearch, RequestEntry, StageEnd, StageStart
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Level
from swarmtui.session_process import journal_queue, live_levels
from swarmtui.session_process.journal_queue import JournalQueue
from swarmtui.session_process.live_levels import EndedStages, LevelRecords, LiveLevels
from swarmtui.sessions.journal import decode_line, read_journal
from swarmtui.sessions.replay import open_replay
from swarmtui.state.session_state import SessionState
from tests.sessions.session_builders import T0, full_session, head, record

SEARCH = CapacitySearch(t_ns=0, slo="ttft_p90=2s", alpha=0.2)


def level_records(journal_file: JournalQueue) -> LevelRecords:
    """Add a whole session, entry by entry, as the session process does."""
    records = LevelRecords(Plan(), journal_file)
    for entry in full_session():
        journal_file.write(entry)
        match entry:
            case StageStart():
                records.starts.append(entry)
            case StageEnd():
                records.ends.append(entry)
            case RequestEntry(record=record) if record.phase != "warmup":
                records.add(record)
    journal_file.flush()
    return records


def read(records: LevelRecords) -> tuple[Level, ...]:
    levels = asyncio.run(records.levels(records.ended(), (), (), SEARCH))
    assert levels is not None
    return levels


def test_levels_from_the_journal_equal_those_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_records = level_records(JournalQueue(tmp_path / "kept"))
    assert kept_records.in_memory
    kept = read(kept_records)
    monkeypatch.setattr(live_levels, "_MAX_GAPS", 500)
    records = level_records(JournalQueue(tmp_path / "read"))
    assert not records.in_memory and records.answered
    assert [level.ok for level in kept] == [5, 10]
    assert all(level.judged_ttft_s is not None for level in kept)
    assert read(records) == kept


def test_levels_include_entries_that_are_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_levels, "_MAX_GAPS", 500)
    journal_file = JournalQueue(tmp_path / "here")
    records = level_records(journal_file)
    before = read(records)
    shutil.rmtree(tmp_path / "here")

    def full(entry: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_file._writer, "append", full)
    late = record(999, sent=2900, c=2, stage=2)
    journal_file.write(RequestEntry(record=late))
    assert [decode_line(line) for line in journal_file.unsaved_requests] == [RequestEntry(record=late)]
    assert [level.ok for level in read(records)] == [before[0].ok, before[1].ok + 1]


def test_frequent_refreshes_start_only_one_computation_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the user changes C quickly in a long session."""
    monkeypatch.setattr(live_levels, "_MAX_GAPS", 500)
    records, state, computations = level_records(JournalQueue(tmp_path / "read")), SessionState(0), 0
    compute = records.levels_from_journal

    async def counting(ended: EndedStages, search: CapacitySearch | None) -> tuple[Level, ...] | None:
        nonlocal computations
        computations += 1
        return await compute(ended, search)

    async def scenario() -> None:
        levels = LiveLevels(records, state, JournalQueue(tmp_path / "events"))
        for _ in range(20):
            levels.refresh()
            await asyncio.sleep(0)
        await levels.wait(asyncio.Event())

    monkeypatch.setattr(records, "levels_from_journal", counting)
    asyncio.run(scenario())
    assert computations == 2
    assert [level.ok for level in state.levels] == [5, 10]


def test_answers_that_come_after_a_refresh_are_in_the_next_one(tmp_path: Path) -> None:
    """As the replay shows it: streams of a stage that was steered continue while its levels are computed."""
    journal = JournalQueue(tmp_path / "kept")
    records, state = level_records(journal), SessionState(0)
    levels, seen = LiveLevels(records, state, journal), []

    async def scenario() -> None:
        levels.refresh()
        records.add(record(999, sent=2900, c=2, stage=2))
        for _ in range(2):
            await levels.wait(asyncio.Event())
            seen.append([level.ok for level in state.levels])
            levels.refresh()

    asyncio.run(scenario())
    assert seen == [[5, 10], [5, 11]]


def long_run(directory: Path, requests: int) -> list[Record]:
    """One stream; every third gap is long, and one gap is the longest of all."""
    journal_file, records = JournalQueue(directory), []
    journal_file.write(head())
    journal_file.write(StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=requests))
    for task in range(requests):
        stall = 70_000 if task == requests - 1 else 40_000
        gaps = (0, *[10_000, 10_000, stall, 10_000] * 2)
        span = sum(gaps) // 1000
        records.append(
            record(
                task, sent=300 * task, chunks=len(gaps), tokens_out=len(gaps), chunk_us=gaps,
                t_last_ns=T0 + (300 * task + 50 + span) * 1_000_000,
                t_done_ns=T0 + (300 * task + 51 + span) * 1_000_000,
            )
        )  # fmt: skip
        journal_file.write(RequestEntry(record=records[-1]))
        journal_file.flush()
    journal_file.write(StageEnd(number=1, t_ns=T0 + 300 * requests * 1_000_000, complete=True))
    journal_file.close()
    return records


def test_long_journal_keeps_all_requests_but_not_all_chunk_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_queue, "_FULL_DETAIL_BYTES", 20_000)
    records = long_run(tmp_path / "20261115-014455-3f9a", 400)
    journal = read_journal(tmp_path / "20261115-014455-3f9a")
    assert [event.name for event in journal.events] == ["thinned"]
    assert [r.id for r in journal.records] == [r.id for r in records]
    with_stamps = sum(bool(r.chunk_us) for r in journal.records)
    assert 50 < with_stamps < 100
    (found,) = level_figures(journal.records, journal.stages, journal.ends)
    (truth,) = level_figures(records, journal.stages, journal.ends)
    assert found.longest_stall_s == truth.longest_stall_s == 0.07
    assert found.icl_s.p50 == truth.icl_s.p50 and found.icl_s.n < truth.icl_s.n
    for same in ("n", "ok", "wall_s", "tokens_out", "out_tps_wall", "ttft_s", "tpot_s", "e2e_s", "per_stream_tps"):
        assert getattr(found, same) == getattr(truth, same), same
    assert found.out_tps_steady == pytest.approx(truth.out_tps_steady)
    # In a replay an answer without chunk times arrives at an even rate.
    frame = open_replay(tmp_path, "last").frame_at(300 * 398 / 1000 + 0.1)
    assert 0 < frame.rows[0].total < 9


def test_short_journal_keeps_all_chunk_times(tmp_path: Path) -> None:
    records = long_run(tmp_path, 50)
    assert list(read_journal(tmp_path).records) == records
    assert not read_journal(tmp_path).events


def test_a_silence_is_logged_once_when_its_level_has_ended(tmp_path: Path) -> None:
    """One answer of two stops for three seconds; the levels are computed again after each level."""
    journal = JournalQueue(tmp_path / "s")
    journal.write(head())
    records, state = LevelRecords(Plan(), journal), SessionState(0)
    for task, gap_us in enumerate((10_000, 3_000_000)):
        gaps = (0, *[10_000] * 40, gap_us, *[10_000] * 40)
        last_ns = T0 + (10_000 * task + 50) * 1_000_000 + 1000 * sum(gaps)
        records.add(
            record(
                task, sent=10_000 * task, chunks=len(gaps), tokens_out=len(gaps), chunk_us=gaps,
                t_last_ns=last_ns, t_done_ns=last_ns, c=1, stage=1,
            )
        )  # fmt: skip
    records.starts.append(StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=2))
    records.ends.append(StageEnd(number=1, t_ns=T0 + 20_000 * 1_000_000, complete=True))
    levels = LiveLevels(records, state, journal)

    async def scenario() -> None:
        for _ in range(2):
            levels.refresh()
            await levels.wait(asyncio.Event())

    asyncio.run(scenario())
    journal.close()
    assert [event.name for event in read_journal(tmp_path / "s").events] == ["frozen"]
