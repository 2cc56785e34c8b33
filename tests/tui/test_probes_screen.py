"""The probe history screen: snapshots, targets and filter."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from swarmtui.analysis.compare.probe_history import probe_history
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import End, RequestEntry, StageEnd, StageStart
from swarmtui.model.session_tags import Series
from swarmtui.sessions.store import write_summary
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.probes_screen import probes_view
from tests.sessions.session_builders import MS, T0, head, record, write_session
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text

EXPECTED = Path(__file__).parent / "expected"
START = datetime(2026, 11, 1, tzinfo=UTC)


def write_probe(root: Path, at: datetime, gap_us: int, model: str = "gemma") -> None:
    """Write a session with one answer of ten tokens, `gap_us` apart."""
    name = f"{at:%Y%m%d-%H%M%S}-aaaa"
    answer = record(1, chunk_us=(0, *[gap_us] * 9), t_last_ns=T0 + 50 * MS + 9 * 1000 * gap_us)
    directory = write_session(
        root / name,
        [
            head(name, series=Series(kind="probe", name="http://box:8000"), created=at.isoformat(),
                 endpoints=(Endpoint(url="http://box:8000", model=model),)),
            StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=1),
            RequestEntry(record=answer),
            StageEnd(number=1, t_ns=T0 + 10**9, complete=True),
            End(t_ns=T0 + 10**9, state="done"),
        ],
    )  # fmt: skip
    write_summary(directory)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four probes per day for 14 days at about 80 tok/s; the last five are 5 % slower. One probe of another model."""
    root, chance = tmp_path_factory.mktemp("probed") / "sessions", Random(5)
    for number in range(56):
        gap = round(12_500 * (1 + chance.gauss(0, 0.008)) * (1.05 if number > 50 else 1.0))
        write_probe(root, START + timedelta(hours=6 * number), gap)
    write_probe(root, START + timedelta(hours=100, minutes=7), 20_000, model="qwen")
    return root


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_probes_screen_matches_snapshot(probed: Path, until: Until, size: tuple[int, int]) -> None:
    app = SwarmApp(session_root=probed)
    async with app.run_test(size=size) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("H")
        await until(lambda: "1 of 2" in screen_text(app))
        await pilot.pause()
        shown = screen_text(app) + "\n"
    path = EXPECTED / f"probes-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8")


async def test_keys_select_and_filter_targets(probed: Path, until: Until) -> None:
    app = SwarmApp(session_root=probed)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("L")
        await until(lambda: "sessions" in screen_text(app).splitlines()[0])
        await pilot.press("H")
        await until(lambda: "✗ drifted: the smoothed rate" in screen_text(app))
        assert "drifted" in screen_text(app) and "probes differ by" in screen_text(app)
        await pilot.press("n")
        await until(lambda: "no probe in the 7 days before" in screen_text(app))
        await pilot.press("slash", *"gem", "enter")
        await until(lambda: "1 of 1" in screen_text(app) and "gemma" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "1 of 2" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "sessions" in screen_text(app).splitlines()[0])


async def test_empty_probe_history_says_how_to_start_one(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("H")
        await until(lambda: "no probes yet: start the plan “probe”" in screen_text(app))


def test_target_whose_probes_all_failed_says_so() -> None:
    view = probes_view({"http://127.0.0.1:8000 gemma chat": probe_history([])}, "", 0)
    assert view.empty == "http://127.0.0.1:8000 gemma chat: no probe measured a rate"
