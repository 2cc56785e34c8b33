from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.model.client_protocol import Frame, WatchedStream
from swarmtui.model.journal import End, Entry, RequestEntry, StageEnd, StageStart
from swarmtui.model.load import Barrier, Mixed, SerialRates, Swarm
from swarmtui.model.plan import Plan
from swarmtui.sessions.replay import Replay, open_replay, result_frame
from swarmtui.sessions.store import load_session, summarise
from tests.sessions import session_builders
from tests.sessions.session_builders import MS, T0

RECORDED = Path(__file__).parent.parent / "tui" / "recorded"
FIRST = min(path.name for path in RECORDED.iterdir())


@pytest.fixture(scope="module")
def replay() -> Replay:
    return open_replay(RECORDED, FIRST)


def moments(replay: Replay) -> list[float]:
    return [second / 4 for second in range(int(replay.length_s * 4))]


def watched(replay: Replay, agent: int, at_s: float) -> WatchedStream:
    found = replay.frame_at(at_s, watched=agent).watched
    assert found is not None
    return found


def test_last_frame_has_the_saved_levels(replay: Replay) -> None:
    saved = summarise(load_session(RECORDED, FIRST)).levels
    shown = replay.frame_at(replay.length_s).levels
    assert [(level.c, level.n, level.out_tps_steady) for level in shown] == [
        (level.c, level.n, level.out_tps_steady) for level in saved
    ]


@pytest.mark.parametrize("root", [RECORDED, RECORDED.parent.parent / "sessions" / "recorded"], ids=["sim", "gpu"])
def test_result_of_a_session_is_the_end_of_its_replay(root: Path) -> None:
    """Except for what only its journal has: times, requests and samples."""
    replay, summary = open_replay(root, "last"), summarise(load_session(root, "last"))
    shown, saved = replay.frame_at(replay.length_s), result_frame(summary)
    for name in ("levels", "tasks", "quality", "answer", "goodput", "servers"):
        assert getattr(saved, name) == getattr(summary, name)
    assert saved.levels and saved.planned and saved.quality and saved.answer
    differ = {name for name in Frame.__struct_fields__ if getattr(shown, name) != getattr(saved, name)}
    assert differ <= {
        "t_ns", "elapsed_s", "done", "of", "run", "runs", "out_tps", "per_stream_tps", "ttft_s", "finished", "totals",
        "coalesced_chunks", "tokens_per_chunk", "rows", "rates", "points", "telemetry", "ttft_split",
    }  # fmt: skip


def test_levels_appear_in_order(replay: Replay) -> None:
    seen = [tuple(level.c for level in replay.frame_at(at_s).levels) for at_s in moments(replay)]
    assert list(dict.fromkeys(seen))[:4] == [(), (1,), (1, 2), (1, 2, 4)]


def test_rows_agree_with_counts(replay: Replay) -> None:
    for at_s in moments(replay):
        frame = replay.frame_at(at_s)
        busy = [row for row in frame.rows if row.state != "idle"]
        assert len(busy) == frame.in_flight
        assert sum(row.state in ("waiting", "prefill") for row in busy) == frame.waiting
        assert frame.in_flight <= max(frame.c, 2)


def test_token_rates_sum_to_all_tokens(replay: Replay) -> None:
    tokens = sum(record.tokens_out or 0 for record in load_session(RECORDED, FIRST).journal.records)
    replay.frame_at(replay.length_s)
    points = replay.history
    each_second = [point.out_tps or 0.0 for point in points[3::4]]
    assert sum(each_second) == pytest.approx(tokens, rel=0.05)


def test_frames_do_not_depend_on_order(replay: Replay) -> None:
    late = replay.frame_at(12.0)
    replay.frame_at(3.0)
    assert replay.frame_at(12.0) == late


def test_answer_text_grows_over_time(replay: Replay) -> None:
    frames = [replay.frame_at(at_s) for at_s in moments(replay)]
    first = next(frame for frame in frames if any(row.state == "writing" and row.total > 20 for row in frame.rows))
    row = next(row for row in first.rows if row.total > 20)
    at_s = first.elapsed_s
    early, later = watched(replay, row.agent, at_s), watched(replay, row.agent, at_s + 0.125)
    assert early.text and later.text.startswith(early.text)
    assert early.chunks == row.total and later.gaps_s.n > early.gaps_s.n
    assert early.t_sent_ns == row.t_sent_ns and early.t_first_ns is not None
    assert watched(replay, 999, at_s).text == ""


def test_finished_answers_are_listed_newest_first(replay: Replay) -> None:
    last = watched(replay, 0, replay.length_s)
    assert last.task == last.before[0].task
    assert [answer.task for answer in last.before] == sorted({answer.task for answer in last.before}, reverse=True)
    assert watched(replay, 0, 0.0).before == ()


def test_frame_has_telemetry(replay: Replay) -> None:
    telemetry = replay.frame_at(replay.length_s).telemetry
    assert telemetry is not None and telemetry.gpus[0].simulated


@pytest.mark.parametrize(
    ("plan", "how", "speedup"),
    [
        (Plan(load=Barrier(levels=(2,), serial="measured")), "measured", 2.0),
        (
            Plan(load=Swarm(agents=2, serial_rates=SerialRates(prompt_tps=100.0, decode_tps=100.0))),
            "extrapolated from 100 prompt and 100 output tok/s of a single stream",
            0.34 / 0.14,
        ),
    ],
)
def test_replayed_batch_has_its_serial_baseline(tmp_path: Path, plan: Plan, how: str, speedup: float) -> None:
    entries: list[Entry] = [session_builders.head(plan=plan)]
    entries.append(StageStart(number=1, t_ns=T0, c=2, run=1, phase="level", of=2, load=plan.load.name))
    entries += [RequestEntry(record=session_builders.record(task, c=2)) for task in (0, 1)]
    entries.append(StageEnd(number=1, t_ns=T0 + 150 * MS, complete=True))
    if plan.load.serial_tasks is None:
        entries.append(StageStart(number=2, t_ns=T0 + 200 * MS, c=2, run=1, phase="serial", of=2, load=plan.load.name))
        entries += [
            RequestEntry(record=session_builders.record(2 + n, sent=200 + 140 * n, c=2, stage=2, phase="serial"))
            for n in (0, 1)
        ]
        entries.append(StageEnd(number=2, t_ns=T0 + 490 * MS, complete=True))
    entries.append(End(t_ns=T0 + 500 * MS, state="done"))
    session_builders.write_session(tmp_path / "20261115-014455-3f9a", entries)
    replay = open_replay(tmp_path, "last")
    frame = replay.frame_at(replay.length_s)
    (shown,) = frame.levels
    assert (frame.load, shown.key) == (plan.load.name, (frame.c, frame.rate))
    assert shown.serial is not None and shown.serial.how == how
    assert shown.wall_speedup == pytest.approx(speedup)
    (saved,) = summarise(load_session(tmp_path, "last")).levels
    assert shown.serial == saved.serial


def test_replayed_mixed_load_has_its_tasks(tmp_path: Path) -> None:
    entries: list[Entry] = [session_builders.head(plan=Plan(load=Mixed(levels=(2,))))]
    entries.append(StageStart(number=1, t_ns=T0, c=2, run=1, phase="level", of=2, load="mixed"))
    kinds = ("primary", "side")
    entries += [RequestEntry(record=session_builders.record(n, c=2, type=kind)) for n, kind in enumerate(kinds)]
    entries += [StageEnd(number=1, t_ns=T0 + 150 * MS, complete=True), End(t_ns=T0 + 200 * MS, state="done")]
    session_builders.write_session(tmp_path / "20261115-014455-3f9a", entries)
    replay = open_replay(tmp_path, "last")
    frames = [replay.frame_at(at_s) for at_s in (0.1, replay.length_s)]
    assert [tuple(task.type for task in frame.tasks) for frame in frames] == [(), kinds]


def test_snapshots_share_nothing_that_changes(replay: Replay) -> None:
    """The frames of a replay that has shown its end are those of one that has not."""
    other = open_replay(RECORDED, FIRST)
    other.frame_at(other.length_s)
    for at_s in (0.0, 4.0, 11.0, 15.5):
        assert other.frame_at(at_s) == open_replay(RECORDED, FIRST).frame_at(at_s)
        other.frame_at(other.length_s)


def test_playing_shows_what_a_jump_shows(replay: Replay) -> None:
    played = [replay.frame_at(at_s) for at_s in moments(replay)][60]
    jumped = open_replay(RECORDED, FIRST).frame_at(60 / 4)
    same = (
        "finished",
        "done",
        "in_flight",
        "waiting",
        "out_tps",
        "ttft_s",
        "per_stream_tps",
        "rows",
        "points",
        "levels",
    )
    assert {name: getattr(played, name) for name in same} == {name: getattr(jumped, name) for name in same}


def test_what_no_journal_holds_is_not_known(replay: Replay) -> None:
    frame = replay.frame_at(9.0)
    assert (frame.lag_ms, frame.worker_cpu, frame.clock_steps, frame.left_s) == (None,) * 4
    assert not {line.code for line in frame.quality} & {"client_lag", "client_cpu", "client_clock"}
