"""The tuning log screen: changes are marked and annotated by keys."""

from __future__ import annotations

from pathlib import Path

import msgspec

from swarmtui.experiments.store import add_change, read_log
from swarmtui.model.tuning import LoggedChange
from swarmtui.tui.app import SwarmApp
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text


def change(after: str, what: str, share: float) -> LoggedChange:
    return LoggedChange(
        number=0, created="2026-11-15T03:00:00+00:00", before="first", after=after, what=what,
        effect=f"C=4: {100 * share:+.1f} % output tok/s, faster (4 v 4 runs, p = 0.029)", verdict="faster",
        change=share,
    )  # fmt: skip


async def test_changes_can_be_marked_and_annotated(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    add_change(root, change("second", "--max-num-seqs 2 → 4", 0.256))
    add_change(root, change("third", "+ --enforce-eager", 0.031))
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("L")
        await until(lambda: "no sessions yet" in screen_text(app))
        await pilot.press("T")
        await until(lambda: "--max-num-seqs 2 → 4" in screen_text(app))
        lines = screen_text(app).splitlines()
        assert "+ --enforce-eager" in lines[2] and "+3.1 %" in lines[2] and "faster" in lines[2]
        assert "+26 %" in lines[3]
        await pilot.press("y", "j", "r", "w")
        await pilot.press(*"hot", "enter")
        await until(lambda: "hot" in screen_text(app).splitlines()[3])
        assert "C=4: +25.6 % output tok/s, faster (4 v 4 runs, p = 0.029)" in screen_text(app)
        await pilot.press("escape", "escape", "q")
    assert [(row.kept, row.note) for row in read_log(root)] == [("reverted", "hot"), ("kept", "")]


async def test_verdicts_are_in_view_in_a_narrow_terminal(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    agents = msgspec.structs.replace(
        change("second", "--max-num-batched-tokens 2048 → 8192", 0.1), verdict="not sure yet", kept="reverted",
        agents=(122, 126), agents_numbers=("122", "126+"), agents_detail="122 (118–131) → 126 (121–133)",
        note="with the new driver",
    )  # fmt: skip
    add_change(root, agents)
    add_change(root, msgspec.structs.replace(agents, after="third", verdict="more agents"))
    app = SwarmApp(session_root=root)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("T")
        await until(lambda: "122 → 126+ agents" in screen_text(app))
        lines = screen_text(app).splitlines()
        assert "▲ more agents" in lines[2] and "? not sure yet" in lines[3]
        assert all("8192" in line and "reverted" in line for line in lines[2:4])
        await pilot.resize_terminal(140, 40)
        await until(lambda: "122 (118–131) → 126 (121–133) agents" in screen_text(app))


async def test_empty_log_says_what_adds_changes(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press("T")
        await until(lambda: "no changes yet: R after a run" in screen_text(app))
        await pilot.press("y", "w", "escape")
