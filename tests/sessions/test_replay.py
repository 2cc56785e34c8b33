"""A saved session, watched again: what was to be seen at any moment of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.sessions.replay import Replay, open_replay
from swarmtui.sessions.store import load, summarise

RECORDED = Path(__file__).parent.parent / "tui" / "recorded"
FIRST = min(path.name for path in RECORDED.iterdir())


@pytest.fixture(scope="module")
def replay() -> Replay:
    return open_replay(RECORDED, FIRST)


def moments(replay: Replay) -> list[float]:
    return [second / 4 for second in range(int(replay.length_s * 4))]


def test_its_end_has_the_levels_that_were_saved(replay: Replay) -> None:
    saved = summarise(load(RECORDED, FIRST)).levels
    shown = replay.frame_at(replay.length_s).levels
    assert [(level.c, level.n, level.out_tps_steady) for level in shown] == [
        (level.c, level.n, level.out_tps_steady) for level in saved
    ]


def test_levels_come_one_after_the_other(replay: Replay) -> None:
    seen = [tuple(level.c for level in replay.frame_at(at_s).levels) for at_s in moments(replay)]
    assert list(dict.fromkeys(seen))[:4] == [(), (1,), (1, 2), (1, 2, 4)]


def test_rows_and_counts_tell_the_same(replay: Replay) -> None:
    for at_s in moments(replay):
        frame = replay.frame_at(at_s)
        busy = [row for row in frame.rows if row.state != "idle"]
        assert len(busy) == frame.in_flight
        assert sum(row.state in ("waiting", "prefill") for row in busy) == frame.waiting
        assert frame.in_flight <= max(frame.c, 2)


def test_tokens_over_time_are_the_tokens_of_all_requests(replay: Replay) -> None:
    tokens = sum(record.tokens_out or 0 for record in load(RECORDED, FIRST).journal.records)
    points = replay.points_until(replay.length_s)
    each_second = [point.out_tps or 0.0 for point in points[4::4]]
    assert sum(each_second) == pytest.approx(tokens, rel=0.05)


def test_any_moment_can_be_seen_in_any_order(replay: Replay) -> None:
    late = replay.frame_at(12.0)
    replay.frame_at(3.0)
    assert replay.frame_at(12.0) == late


def test_the_text_of_an_answer_grows_as_it_did(replay: Replay) -> None:
    frames = [replay.frame_at(at_s) for at_s in moments(replay)]
    first = next(frame for frame in frames if any(row.state == "writing" and row.total > 20 for row in frame.rows))
    row = next(row for row in first.rows if row.total > 20)
    at_s = first.elapsed_s
    early, later = replay.text_at(row.agent, at_s), replay.text_at(row.agent, at_s + 0.1)
    assert early and later.startswith(early)
    assert replay.text_at(999, at_s) == ""


def test_telemetry_is_that_of_the_moment(replay: Replay) -> None:
    telemetry = replay.frame_at(replay.length_s).telemetry
    assert telemetry is not None and telemetry.gpus[0].simulated
