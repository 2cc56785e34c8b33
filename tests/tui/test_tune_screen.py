"""The grid of a tune in the app: as it was when somebody found it good, and by keys on a tune that really runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from swarmtui.experiments.tune_process import Errand, start_tuner
from swarmtui.experiments.tune_status import Standing, read_standing
from swarmtui.experiments.tune_store import tune_directory
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.run_request import Order
from swarmtui.model.tuning import TuneFile
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.live.replay_screen import ReplayScreen
from swarmtui.tui.tune.configuration_screen import CellScreen
from swarmtui.tui.tune.screen import TuneScreen
from swarmtui.tui.tune.view import tune_view
from tests.experiments.made_tunes import FOUR, ONE, SEATS, TWO, broken, done, kept, present
from tests.tui.conftest import Until
from tests.tui.made_frames import frame
from tests.tui.screen_text import screen_text

EXPECTED = Path(__file__).parent / "expected"
ROWS = [
    done(ONE, 100.0, j_per_token=3.0, mean_w=300.0, peak_memory=20 << 30, simulated=True),
    broken(TWO, "ended with exit code 1", "loading weights", "CUDA out of memory"),
    done(FOUR, 250.0, j_per_token=1.4, mean_w=350.0, peak_memory=21 << 30, simulated=True),
]


def first_cell(app: SwarmApp) -> str:
    return " ".join(screen_text(app).splitlines()[5].split()[3:5])


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_grid_is_as_it_was(tmp_path: Path, until: Until, size: tuple[int, int]) -> None:
    """Half full, and given up: nothing in it moves."""
    directory = kept(tmp_path / "sessions" / ".tuning" / "seats", SEATS, ROWS, present(ended="stopped"))
    app = SwarmApp(tune=directory)
    async with app.run_test(size=size) as pilot:
        await until(lambda: "BROKEN" in screen_text(app))
        await pilot.pause()
        shown = screen_text(app) + "\n"
        await pilot.press("q")
    path = EXPECTED / f"tune-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


async def test_keys_order_the_cells_show_findings_alone_and_tell_why_one_broke(tmp_path: Path, until: Until) -> None:
    directory = kept(tmp_path / "sessions" / ".tuning" / "seats", SEATS, ROWS, present(ended="stopped"))
    app = SwarmApp(tune=directory)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(lambda: "BROKEN" in screen_text(app))
        assert first_cell(app) == "--seats 1"
        await pilot.press("o")
        await until(lambda: first_cell(app) == "--seats 4")
        await pilot.press("o", "j", "enter")
        await until(lambda: "has not been measured yet" in screen_text(app))
        await pilot.press("j", "enter")
        await until(lambda: "CUDA out of memory" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "1 cells" in screen_text(app))
        await pilot.press("3")
        await until(lambda: "front: tok/s against J/token" in screen_text(app))
        assert "1.40 J SIMULATED" in screen_text(app) and "+150.0 %  --seats 1 → 4" in screen_text(app)
        await pilot.press("2")
        await until(lambda: "2 leaderboard" in screen_text(app) and "1 cells" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "1 cells" in screen_text(app))
        await pilot.press("q")
    assert app.return_value is not None and not app.return_value.detached


def test_the_present_cell_has_the_figures_of_its_own_run() -> None:
    now = present(flags=FOUR, phase="running", session="s")
    view = tune_view(Standing(tune=SEATS, rows=tuple(ROWS[:2]), present=now, alive=True), frame(4), 1_102.0, False)
    line = next(line for line in view.cells if line.state == "▶ running")
    assert line.figures[:5] == ("160", "4", "123 ms", "1.25", "200")
    assert view.head.notice == "--seats 4: running, C=4 run 1/2 3/8, 1:00; enter shows it"
    assert view.head.progress == "2 of 6 cells, 1 BROKEN"
    starting = tune_view(
        Standing(tune=SEATS, present=present(flags=ONE, phase="starting"), alive=True), None, 1_100.0, False
    )
    assert "--seats 1: the server starts, 0:58" in starting.head.notice
    killed = tune_view(Standing(tune=SEATS, present=now, alive=False), None, 1_100.0, False)
    assert killed.head.notice.startswith("interrupted, nobody is at it")


async def test_a_tune_is_watched_cell_by_cell_and_goes_on_without_the_app(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    command = f"{sys.executable} -m swarmtui.sim moe-tp1 --speed=2 --port={{port}}"
    tune = TuneFile(command=command, name="two", grid={"--seats": (1, 2)}, stop_within="5s")
    plan = Plan(levels=(2,), requests=Requests(count=6), warmup=1, max_tokens=100, seed=1)
    order = Order(endpoints=(), workload="coding", plan=plan, session_root=str(root))
    directory = tune_directory(root, tune)
    start_tuner(Errand(tune=tune, order=order, directory=str(directory)))
    app = SwarmApp(tune=directory, session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        base = app.screen_stack[0]
        assert isinstance(base, TuneScreen)
        await until(lambda: "▶ running" in screen_text(app))
        place = next(k for k, line in enumerate(screen_text(app).splitlines()) if "▶ running" in line)
        await pilot.press("g", *["j"] * (place - 5), "enter")
        await until(lambda: isinstance(app.screen, CellScreen) and "writing" in screen_text(app))
        await pilot.press("plus", "x", "escape")  # a tune's run cannot be steered
        await until(lambda: app.screen is base)
        await until(lambda: "● done" in screen_text(app))
        place = next(k for k, line in enumerate(screen_text(app).splitlines()) if "● done" in line)
        await pilot.press("g", *["j"] * (place - 5), "enter")
        await until(lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("escape", "q")
        await until(lambda: "A tune is on. What becomes of it?" in screen_text(app))
        await pilot.press("d")
    assert app.return_value is not None and app.return_value.detached
    await until(lambda: not read_standing(directory).alive)
    found = read_standing(directory)
    assert [row.state for row in found.rows] == ["done", "done"]
    assert found.present is not None and found.present.ended == "done"


async def test_a_tune_is_stopped_from_the_app_with_its_server(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    command = f"{sys.executable} -c 'import time; time.sleep(600)' {{port}}"
    tune = TuneFile(command=command, name="hangs", grid={"--n": (1, 2)}, stop_within="2s")
    order = Order(endpoints=(), workload="coding", plan=Plan(), session_root=str(root))
    directory = tune_directory(root, tune)
    start_tuner(Errand(tune=tune, order=order, directory=str(directory)))
    app = SwarmApp(tune=directory, session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "◌ starting" in screen_text(app))
        await pilot.press("x", "s")
        await until(lambda: app.return_value is not None)
    assert app.return_value is not None and not app.return_value.detached
    found = read_standing(directory)
    assert found.present is not None and found.present.ended == "stopped"
    assert found.rows == ()


async def test_all_tunes_are_listed_and_each_is_opened_by_a_key(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    kept(root / ".tuning" / "seats", SEATS, ROWS, present(ended="stopped"))
    (root / ".tuning" / "spoilt").mkdir()
    (root / ".tuning" / "spoilt" / "tune.json").write_text("{")
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "coding" in screen_text(app))
        await pilot.press("U")
        await until(lambda: "3 of 6" in screen_text(app))
        shown = screen_text(app)
        assert "250 tok/s at C=4 with --seats 4" in shown and "stopped" in shown and "unreadable" in shown
        row = next(place for place, line in enumerate(shown.splitlines()[2:]) if "3 of 6" in line)
        await pilot.press(*["j"] * row, "enter")
        await until(lambda: "BROKEN" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "the tune is not running" in screen_text(app))
        await pilot.press("d")
        await until(lambda: "newest first · 2" in screen_text(app))


async def test_no_tune_says_how_to_make_one(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        await pilot.press("U")
        await until(lambda: "no tune yet: `swarmtui tune FILE` makes one" in screen_text(app))
