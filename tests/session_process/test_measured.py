"""A run of hours: memory and journal stay bounded, and the figures are the same as those of a short one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.model.plan import Plan
from swarmtui.model.record import Record
from swarmtui.model.session import Level, Request, StretchEnd, StretchStart
from swarmtui.session_process import journal_queue as ledger_module
from swarmtui.session_process import live_levels as measured_module
from swarmtui.session_process.figures import Figures
from swarmtui.session_process.journal_queue import Ledger
from swarmtui.session_process.live_levels import Measured
from swarmtui.session_process.live_state import Board
from swarmtui.sessions.journal import read_journal
from swarmtui.sessions.replay import open_replay
from tests.sessions.made_sessions import T0, head, record, whole


def fed(ledger: Ledger) -> Measured:
    """A whole session, entry by entry, as the conductor has it."""
    measured = Measured(Plan(), ledger)
    for entry in whole():
        ledger.write(entry)
        match entry:
            case StretchStart():
                measured.begin(entry)
            case StretchEnd():
                measured.end(entry)
            case Request(record=record) if record.phase != "warmup":
                measured.add(record)
    return measured


def read(measured: Measured) -> tuple[Level, ...]:
    levels = asyncio.run(measured.read())
    assert levels is not None
    return levels


def test_what_is_no_longer_in_memory_gives_the_same_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = fed(Ledger(tmp_path / "kept")).at_hand
    monkeypatch.setattr(measured_module, "_MOST_KEPT", 500)
    measured = fed(Ledger(tmp_path / "read"))
    assert measured.at_hand is None and measured.answered
    assert kept is not None and [level.ok for level in kept] == [5, 10]
    assert read(measured) == kept


def test_of_a_removed_directory_and_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_module, "_MOST_KEPT", 500)
    ledger = Ledger(tmp_path / "here")
    measured = fed(ledger)
    before = read(measured)
    shutil.rmtree(tmp_path / "here")

    def full(entry: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger._writer, "append", full)
    late = record(999, sent=2900, c=2, stretch=2)
    ledger.write(Request(record=late))
    assert ledger.problem
    assert [level.ok for level in read(measured)] == [before[0].ok, before[1].ok + 1]


def test_however_often_they_are_asked_for_no_more_than_one_reading_waits_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody steers quickly through many levels of a long session."""
    monkeypatch.setattr(measured_module, "_MOST_KEPT", 500)
    measured, board, readings = fed(Ledger(tmp_path / "read")), Board(0), 0
    really_read = measured.read

    async def counted() -> tuple[Level, ...] | None:
        nonlocal readings
        readings += 1
        return await really_read()

    async def play() -> None:
        figures = Figures(measured, board)
        for _ in range(20):
            figures.refresh()
            await asyncio.sleep(0)
        await figures.settled(asyncio.Event())

    monkeypatch.setattr(measured, "read", counted)
    asyncio.run(play())
    assert readings == 2
    assert [level.ok for level in board.levels] == [5, 10]


def long_run(directory: Path, requests: int) -> list[Record]:
    """One stream; each third gap of an answer is long, and one is the longest of all."""
    ledger, made = Ledger(directory), []
    ledger.write(head())
    ledger.write(StretchStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=requests))
    for task in range(requests):
        stall = 70_000 if task == requests - 1 else 40_000
        gaps = (0, *[10_000, 10_000, stall, 10_000] * 2)
        span = sum(gaps) // 1000
        made.append(
            record(
                task, sent=300 * task, chunks=len(gaps), tokens_out=len(gaps), chunk_us=gaps,
                t_last_ns=T0 + (300 * task + 50 + span) * 1_000_000,
                t_done_ns=T0 + (300 * task + 51 + span) * 1_000_000,
            )
        )  # fmt: skip
        ledger.write(Request(record=made[-1]))
    ledger.write(StretchEnd(number=1, t_ns=T0 + 300 * requests * 1_000_000, complete=True))
    ledger.close()
    return made


def test_a_long_journal_keeps_every_request_but_not_every_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_WHOLE_BYTES", 20_000)
    made = long_run(tmp_path / "20261115-014455-3f9a", 400)
    journal = read_journal(tmp_path / "20261115-014455-3f9a")
    assert [event.name for event in journal.events] == ["thinned"]
    assert [r.id for r in journal.records] == [r.id for r in made]
    with_stamps = sum(bool(r.chunk_us) for r in journal.records)
    assert 50 < with_stamps < 100
    (found,) = level_figures(journal.records, journal.stretches, journal.ends)
    (truth,) = level_figures(made, journal.stretches, journal.ends)
    assert found.longest_stall_s == truth.longest_stall_s == 0.07
    assert found.icl_s.p50 == truth.icl_s.p50 and found.icl_s.n < truth.icl_s.n
    for same in ("n", "ok", "wall_s", "tokens_out", "out_tps_wall", "ttft_s", "tpot_s", "e2e_s", "per_stream_tps"):
        assert getattr(found, same) == getattr(truth, same), same
    assert found.out_tps_steady == pytest.approx(truth.out_tps_steady)
    # Watched again, an answer without stamps comes at an even pace.
    frame = open_replay(tmp_path, "last").frame_at(300 * 398 / 1000 + 0.1)
    assert 0 < frame.rows[0].total < 9


def test_a_short_journal_keeps_all(tmp_path: Path) -> None:
    made = long_run(tmp_path, 50)
    assert list(read_journal(tmp_path).records) == made
    assert not read_journal(tmp_path).events
