"""After the end, the result takes the place of the streams: what was found, the levels, and the keys that continue."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from swarmtui.model.client_protocol import Ended
from swarmtui.model.findings import Slots
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.sessions.replay import open_replay
from swarmtui.sessions.store import write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.keys import Keymap
from swarmtui.tui.live.curve import curve_view
from swarmtui.tui.live.header import header_view
from swarmtui.tui.live.levels import levels_view
from swarmtui.tui.live.result import result_lines, result_view
from swarmtui.tui.live.streams import StreamsPanel
from swarmtui.tui.sessions.compare_screen import CompareScreen
from tests.analysis.level_builders import level
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text, text_of

RECORDED = Path(__file__).parent / "recorded"
KEYS = [action for action in Keymap().actions("live") if action.available(ended=True)]


def test_result_has_the_sentence_the_verdict_the_levels_and_the_keys() -> None:
    levels = tuple(level(c, tps=tps, ttft=ttft) for c, tps, ttft in ((1, 80, 0.1), (2, 150, 0.1), (4, 152, 0.9)))
    levels = tuple(msgspec.structs.replace(one, queued=max(0.0, one.c - 2.0)) for one in levels)
    seen = msgspec.structs.replace(frame(4), status="ended", levels=levels)
    ended = Ended("done", "", "/saved")
    view = result_view(seen, ended, levels_view(levels), "C=4: +25.6 %, faster", "", KEYS)
    lines = text_of(result_lines(view, 79, 16)).splitlines()
    assert lines[0].startswith(" sweet spot C=2 (2 to 3 slots, inferred)") and "cliff at C=4" in lines[0]
    assert " C=4: +25.6 %, faster" in lines
    assert any(line.split()[:1] == ["▼4"] and " 152.0 " in line for line in lines) and " saved: /saved" in lines
    assert lines[-1].startswith(" R run again   e export   c compare") and len(lines) == 15


def test_slots_that_the_server_reports_replace_inferred_ones() -> None:
    levels = tuple(level(c, tps=tps, ttft=ttft) for c, tps, ttft in ((1, 80, 0.1), (2, 150, 0.1), (4, 152, 0.9)))
    seen = msgspec.structs.replace(frame(4), status="ended", levels=levels, slots=Slots(per_replica=3))
    (sentence,) = result_view(seen, None, levels_view(levels), "", "", KEYS).found
    assert sentence.startswith("sweet spot C=2; queue forms at C=4;")
    assert curve_view(levels, (), "", slots=seen.slots).summary[0] == "▸ best 2 · ▼ cliff 4"


def test_result_of_a_failed_run_says_why_it_ended() -> None:
    view = result_view(None, Ended("unusable", "nothing answers at :8000", ""), levels_view(()), "", "", KEYS)
    text = text_of(result_lines(view, 79, 12))
    assert "unusable: nothing answers at :8000" in text and "nothing is saved" in text
    assert "no request of a level has finished" in text


def test_progress_after_a_stop_counts_the_levels_of_the_plan() -> None:
    session = msgspec.structs.replace(hello().session, plan=Plan(goal="sweep", load=Closed(levels=(1, 2, 4, 8))))
    levels = (level(1), level(2, complete=False), level(3))
    seen = msgspec.structs.replace(frame(2), status="ended", done=8, of=8, levels=levels)
    view = header_view(session, seen, Ended("stopped", "", "/saved"), None)
    assert (view.progress, view.share) == ("1 of 4 levels", 0.25)


async def test_end_of_a_replay_shows_the_result_and_compares_it(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    first, second = sorted(directory.name for directory in root.iterdir())
    write_summary(root / first)
    source = ReplaySource(open_replay(root, second), hz=4.0)
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        source.playing = False
        streams = app.screen.query_one(StreamsPanel)
        source.seek(9.0)
        await until(lambda: streams.is_on_screen and "space play" in screen_text(app))
        await pilot.press("c")
        source.seek(1_000.0)
        await until(lambda: not streams.is_on_screen and "sweet spot" in screen_text(app))
        await until(lambda: "steady  baseline" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "press 1 for the streams" in screen_text(app))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, CompareScreen))
        await pilot.press("escape", "1")
        await until(lambda: streams.is_on_screen)
        source.seek(9.0)
        await until(lambda: "4 active" in screen_text(app))


async def test_labels_in_the_footer_follow_the_state() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(200, 50)) as pilot:
        assert "p pause" in screen_text(app) and "space freeze" in screen_text(app)
        await pilot.press("space")
        await pilot.pause()
        assert "space unfreeze" in screen_text(app)
        source.live.apply(msgspec.structs.replace(frame(4), status="paused"))
        await pilot.press("space")
        await pilot.pause()
        assert "p resume" in screen_text(app) and "space freeze" in screen_text(app)
