"""The tune screen: snapshots, keys, and a tune that really runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from swarmtui.experiments.store import read_steering, read_tune, tune_directory
from swarmtui.experiments.tune import TuneJob, start_tune_process
from swarmtui.model.client_protocol import Frame
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.tuning import AutoSearch, ExperimentStatus, Tune, TuneFile
from swarmtui.report.table import Cell
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.lines import LineWidget
from swarmtui.tui.live.watch_screens import ReplayScreen, WatchScreen
from swarmtui.tui.table_list import TableList
from swarmtui.tui.tune.screen import TuneScreen
from swarmtui.tui.tune.view import tune_view
from tests.experiments.tune_builders import FOUR, ONE, SLOTS, TWO, done, failed, tune_status, write_tune_directory
from tests.tui.conftest import Until
from tests.tui.frame_builders import frame
from tests.tui.screen_text import TOUCHING, screen_text

EXPECTED = Path(__file__).parent / "expected"
ROWS = [
    done(ONE, 100.0, j_per_token=3.0, mean_w=300.0, peak_memory=20 << 30, simulated=True),
    failed(TWO, "ended with exit code 1", "loading weights", "CUDA out of memory"),
    done(FOUR, 250.0, j_per_token=1.4, mean_w=350.0, peak_memory=21 << 30, simulated=True),
]


def written(directory: Path) -> Tune:
    found = read_tune(directory)
    assert found is not None
    return found


def first_configuration(app: SwarmApp) -> str:
    return screen_text(app).splitlines()[5].partition("--")[2].split("  ")[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_tune_screen_matches_snapshot(tmp_path: Path, until: Until, size: tuple[int, int]) -> None:
    """A stopped tune, so that nothing changes."""
    directory = write_tune_directory(
        tmp_path / "sessions" / ".tuning" / "slots", SLOTS, ROWS, tune_status(ended="stopped")
    )
    app = SwarmApp(tune=directory)
    async with app.run_test(size=size) as pilot:
        await until(lambda: "✖ failed" in screen_text(app))
        await pilot.pause()
        shown = screen_text(app) + "\n"
        await pilot.press("q")
    assert not TOUCHING.search(shown), "words touch a frame"
    path = EXPECTED / f"tune-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
@pytest.mark.parametrize("slots", [(1, 2, 4), (1, 2, 4, 8, 16, 32)])
async def test_panels_share_the_lines_and_do_not_move_while_a_tune_runs(
    tmp_path: Path, until: Until, size: tuple[int, int], slots: tuple[int, ...]
) -> None:
    tune = msgspec.structs.replace(SLOTS, grid={"--slots": slots, "--fast": (False, True)})
    directory = write_tune_directory(tmp_path / ".tuning" / "slots", tune, [], tune_status(flags=ONE, phase="running"))
    app = SwarmApp(tune=directory)
    async with app.run_test(size=size) as pilot:
        await until(lambda: f"file order · {2 * len(slots)} " in screen_text(app))
        await pilot.pause()
        panels = [panel for panel in app.screen.query(LineWidget) if panel.key]
        before = [panel.region for panel in panels]
        assert app.screen.query_one(TableList).inner_size.height == 2 * len(slots) + 2, "the heading, titles and rows"
        write_tune_directory(directory, tune, ROWS, tune_status(ended="stopped"))
        await until(lambda: "--slots 4" in screen_text(app) and "✖ failed" in screen_text(app))
        assert [panel.region for panel in panels] == before
        # Without lines for the chart, its key shows it in place of the configurations.
        await pilot.press("2")
        await until(lambda: "output tok/s ↑, TTFT s →" in screen_text(app))
        assert [panel.region for panel in panels][2:] == before[2:]
        await pilot.press("1")
        await until(lambda: "[1] configurations" in screen_text(app))
        assert [panel.region for panel in panels] == before


async def test_keys_sort_configurations_select_panels_and_open_failures(tmp_path: Path, until: Until) -> None:
    directory = write_tune_directory(
        tmp_path / "sessions" / ".tuning" / "slots", SLOTS, ROWS, tune_status(ended="stopped")
    )
    app = SwarmApp(tune=directory)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(lambda: "✖ failed" in screen_text(app))
        assert first_configuration(app).startswith("slots 1")
        await pilot.press("o")
        await until(lambda: first_configuration(app).startswith("slots 4"))
        await pilot.press("o", "g", "j", "enter")
        await until(lambda: "not measured yet" in screen_text(app))
        await pilot.press("j", "enter")
        await until(lambda: "CUDA out of memory" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "[1] configurations" in screen_text(app))
        await pilot.press("4")
        await until(lambda: "Pareto front of tok/s and J/token (SIMULATED)" in screen_text(app))
        effect = next(line for line in screen_text(app).splitlines() if "1 → 4" in line)
        assert effect.split()[1] == "--slots" and "+150 %" in effect
        assert "1.40 J/token" in " ".join(screen_text(app).replace("┃", " ").split())
        await pilot.press("3")
        await until(lambda: "[3] leaderboard" in screen_text(app) and "[1] configurations" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "[1] configurations" in screen_text(app))
        await pilot.press("q")
    assert app.return_value is not None and not app.return_value.detached


def test_current_configuration_shows_live_figures() -> None:
    now = tune_status(flags=FOUR, phase="running", session="s")
    view = tune_view(Tune(definition=SLOTS, starts=tuple(ROWS[:2]), status=now), frame(4), 1_102.0, False)
    table = view.configurations.table
    row = next(row for row in table.rows if row[0] == Cell("▶ running", "active"))
    shown = {column.id: cell.text for column, cell in zip(table.columns, row, strict=True)}
    figures = [shown[id] for id in ("tps", "c", "ttft", "j_token", "gpu_w")]
    assert figures == ["160", "4", "123 ms", "1.25", "200"]
    assert view.header.notice == ("--slots 4: running, C=4 run 1/2 3/8, 1:00; enter opens it",)
    assert view.header.progress == "2 of 6 configurations, 1 failed"
    starting = tune_view(Tune(definition=SLOTS, status=tune_status(flags=ONE, phase="starting")), None, 1_100.0, False)
    assert "--slots 1: the server is starting, 0:58" in starting.header.notice[0]
    now = msgspec.structs.replace(now, ended="interrupted")
    killed = tune_view(Tune(definition=SLOTS, status=now), None, 1_100.0, False)
    assert killed.header.notice[0].startswith("the same command resumes it")


AUTO = TuneFile(
    command="llama-server -np 2 --port {port}", name="auto", objective="agents", auto=AutoSearch(budget="20m")
)  # fmt: skip
AUTO_ROWS = [
    done({}, 100.0, step="screen", agents=4, agents_low=4, agents_high=5, took_s=60.0, limit_tps=400.0),
    done({"--parallel": 4}, 180.0, step="screen", agents=8, agents_low=7, agents_high=9, took_s=60.0, limit_tps=700.0),
    failed({"--parallel": 8}, "exited with code 1", "CUDA out of memory"),
]


def test_columns_of_gpus_appear_with_their_first_figure() -> None:
    now = tune_status(flags=FOUR, phase="running")
    without = msgspec.structs.replace(frame(4), telemetry=None)
    bare = tuple(msgspec.structs.replace(row, j_per_token=None, mean_w=None, peak_memory=None) for row in ROWS[:1])

    def ids(tune: Tune, seen: Frame | None) -> set[str]:
        return {column.id for column in tune_view(tune, seen, 1_100.0, False).configurations.table.columns}

    figures = {"j_token", "gpu_w", "gpu_gib"}
    for starts in ((), bare):
        for seen in (None, without):
            shown = ids(Tune(definition=SLOTS, starts=starts, status=now), seen)
            assert not shown & figures and {"tps", "ttft"} <= shown
        assert figures <= ids(Tune(definition=SLOTS, starts=starts, status=now), frame(4))


def auto_status(**fields: object) -> ExperimentStatus:
    why = "slots: --parallel 4 → 16"
    return tune_status(flags={"--parallel": 16}, why=why, limit_tps=900.0, budget_s=1200.0, **fields)


def test_automatic_tune_shows_the_limit_beside_the_measurement_and_why_a_start_was_chosen() -> None:
    view = tune_view(Tune(definition=AUTO, starts=tuple(AUTO_ROWS), status=auto_status()), None, 1_102.0, False)
    table = view.configurations.table
    shown = [{c.id: cell.text for c, cell in zip(table.columns, row, strict=True)} for row in table.rows]
    assert [row["flags"].rstrip(" ◆") for row in shown] == [
        "the command",
        "--parallel 4",
        "--parallel 8",
        "--parallel 16",
    ]
    assert [row["agents"] for row in shown[:2]] == ["4 (4–5)", "8 (7–9)"]
    assert [row["limit"] for row in shown[:2]] == ["400", "700"]
    assert view.header.notice[0].startswith("slots: --parallel 4 → 16, limit 900 tok/s: the server is starting")
    assert view.header.progress == "3 starts, 2.0 of 20 min, 1 failed"


async def test_keys_steer_an_automatic_tune(tmp_path: Path, until: Until) -> None:
    directory = write_tune_directory(tmp_path / "sessions" / ".tuning" / "auto", AUTO, AUTO_ROWS, auto_status())
    app = SwarmApp(tune=directory)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "CUDA" in screen_text(app) or "--parallel 16" in screen_text(app))
        await pilot.press("j", "p")
        await until(lambda: read_steering(directory).pins == {"--parallel": 4})
        await until(lambda: "pinned: --parallel 4" in screen_text(app).splitlines()[1])
        assert "[4] result so far" in screen_text(app) and "p pin  v veto  a add" in screen_text(app).splitlines()[-1]
        await pilot.press("j", "v")
        await until(lambda: read_steering(directory).vetoes == ({"--parallel": 8},))
        await pilot.press("a", *"-np 6")
        await until(lambda: "try next -np 6" in screen_text(app).splitlines()[-1])
        await pilot.press("enter")
        await until(lambda: read_steering(directory).added == ({"--parallel": 6},))
        await until(lambda: "--parallel 4 is pinned; p on it removes the pin" in screen_text(app))
        await pilot.press("s", "plus")
        await until(lambda: read_steering(directory).budget_s == 2100.0)
        assert read_steering(directory).stop_after == 4
        await until(lambda: "stops after this start" in screen_text(app))
        await pilot.press("k", "p")
        await until(lambda: read_steering(directory).pins == {})
        await pilot.press("p", "g", "p", "s")
        await until(lambda: read_steering(directory).stop_after is None)
        assert read_steering(directory).pins == {}
        await pilot.press("d")


async def test_steering_keys_of_a_grid_say_that_they_do_nothing(tmp_path: Path, until: Until) -> None:
    directory = write_tune_directory(tmp_path / ".tuning" / "slots", SLOTS, ROWS, tune_status(ended="stopped"))
    app = SwarmApp(tune=directory)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "✖ failed" in screen_text(app))
        await pilot.press("p")
        await until(lambda: "only for an automatic tune" in screen_text(app))
        await pilot.press("q")
    assert not (directory / "steering.json").exists()


async def test_configurations_can_be_watched_and_the_tune_continues_after_detach(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    command = f"{sys.executable} -m swarmtui.sim moe-tp1 --speed=2 --port={{port}}"
    tune = TuneFile(command=command, name="two", grid={"--slots": (1, 2)}, stop_within="5s", restarts=0)
    # Long enough to be watched, and left, on a busy machine.
    plan = Plan(load=Closed(levels=(2,), requests="24C", warmup=1), max_tokens=100, seed=1)
    request = RunRequest(endpoints=(), workload="coding", plan=plan, session_root=str(root))
    directory = tune_directory(root, tune)
    start_tune_process(TuneJob(tune=tune, request=request, directory=str(directory)))
    app = SwarmApp(tune=directory, session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        base = app.screen_stack[0]
        assert isinstance(base, TuneScreen)
        await until(lambda: "▶ running" in screen_text(app))
        position = next(k for k, line in enumerate(screen_text(app).splitlines()) if "▶ running" in line)
        await pilot.press("g", *["j"] * (position - 5), "enter")
        await until(lambda: isinstance(app.screen, WatchScreen) and "writing" in screen_text(app))
        await pilot.press("plus", "x", "escape")  # the run of a tune cannot be steered
        await until(lambda: app.screen is base)
        await until(lambda: "● done" in screen_text(app))
        position = next(k for k, line in enumerate(screen_text(app).splitlines()) if "● done" in line)
        await pilot.press("g", *["j"] * (position - 5), "enter")
        await until(lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("escape", "q")
        await until(lambda: "A tune is in progress. How to quit?" in screen_text(app))
        await pilot.press("d")
    assert app.return_value is not None and app.return_value.detached
    await until(lambda: written(directory).status.ended != "")
    found = written(directory)
    assert [row.state for row in found.starts] == ["done", "done"]
    assert found.status.ended == "done"


async def test_stopping_a_tune_stops_its_server(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "sessions"
    command = f"{sys.executable} -c 'import time; time.sleep(600)' {{port}}"
    tune = TuneFile(command=command, name="hangs", grid={"--n": (1, 2)}, stop_within="2s")
    request = RunRequest(endpoints=(), workload="coding", plan=Plan(), session_root=str(root))
    directory = tune_directory(root, tune)
    monkeypatch.setenv("HF_TOKEN", "canary-hub")
    start_tune_process(TuneJob(tune=tune, request=request, directory=str(directory)))
    assert b"canary" not in Path(f"/proc/{written(directory).status.pid}/environ").read_bytes()
    app = SwarmApp(tune=directory, session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "◌ starting" in screen_text(app))
        await pilot.press("x", "s")
        await until(lambda: app.return_value is not None)
    assert app.return_value is not None and not app.return_value.detached
    found = written(directory)
    assert found.status.ended == "stopped"
    assert found.starts == ()


async def test_tune_list_opens_a_tune(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    write_tune_directory(root / ".tuning" / "slots", SLOTS, ROWS, tune_status(ended="stopped"))
    (root / ".tuning" / "damaged").mkdir()
    (root / ".tuning" / "damaged" / "tune.json").write_text("{")
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "coding" in screen_text(app))
        await pilot.press("U")
        await until(lambda: "3 of 6" in screen_text(app))
        shown = screen_text(app)
        assert "250 tok/s at C=4 with --slots 4" in shown and "stopped" in shown and "unreadable" in shown
        row = next(position for position, line in enumerate(shown.splitlines()[2:]) if "3 of 6" in line)
        await pilot.press(*["j"] * row, "enter")
        await until(lambda: "✖ failed" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "the tune is not running" in screen_text(app))
        await pilot.press("d")
        await until(lambda: "newest first · 2" in screen_text(app))


async def test_empty_tune_list_says_how_to_start_one(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        await pilot.press("U")
        await until(lambda: "no tunes yet: `swarmtui tune FILE` starts one" in screen_text(app))
