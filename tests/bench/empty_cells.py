"""Measure how much of the live screen is empty: cells of blank areas, in percent, at the sizes it is designed for.

python -m tests.bench.empty_cells                       # the recorded session, when two of its levels are done
python -m tests.bench.empty_cells --at 1000 --size 120x40 --show   # after its end

A cell is empty if it is in a blank area of at least 10 columns and 2 lines. Those of the curve and of the history are
part of a picture, and counted only with --all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

from textual.geometry import Region

from swarmtui.sessions.replay import open_replay
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.frame_source import ReplaySource
from swarmtui.tui.live.screen import LiveScreen

SIZES = ("80x24", "100x30", "120x40", "160x45", "200x60")
RECORDED = Path(__file__).parents[1] / "tui" / "recorded"
WIDE, HIGH = 10, 2


def empty_cells(lines: list[str], width: int, pictures: list[Region]) -> int:
    """Count the cells of blank areas outside of pictures."""
    blank = [[char == " " for char in line.ljust(width)] for line in lines]
    for picture in pictures:
        for y in range(picture.y, picture.bottom):
            blank[y][picture.x : picture.right] = [False] * picture.width
    empty = [[False] * width for _ in lines]
    for y in range(len(lines) - HIGH + 1):
        run = 0
        for x in range(width + 1):
            if x < width and all(blank[y + row][x] for row in range(HIGH)):
                run += 1
                continue
            if run >= WIDE:
                for row in range(HIGH):
                    empty[y + row][x - run : x] = [True] * run
            run = 0
    return sum(map(sum, empty))


def empty_share(app: SwarmApp, *, count_all: bool = False) -> float:
    """Return the share of empty cells of the live screen that the app shows."""
    lines = [strip.text for strip in app.screen._compositor.render_strips()]
    charts = app.screen.query("CurvePanel, HistoryPanel")
    pictures = [chart.region for chart in charts if chart.is_on_screen and not count_all]
    return empty_cells(lines, app.size.width, pictures) / app.size.area


async def measure(source: ReplaySource, size: str, at_s: float, show: bool, count_all: bool) -> None:
    width, height = map(int, size.split("x"))
    app = SwarmApp(source=source)
    async with app.run_test(size=(width, height)) as pilot:
        source.playing = False
        source.seek(at_s)
        for _ in range(6):
            assert isinstance(app.screen, LiveScreen)
            app.screen.update_panels()
            await pilot.pause(0.1)
        print(f"{size:8} {empty_share(app, count_all=count_all):6.1%} empty")
        if show:
            print("\n".join(strip.text for strip in app.screen._compositor.render_strips()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=RECORDED, help="sessions of which the first one is replayed")
    parser.add_argument("--at", type=float, default=9.0, help="seconds from the start")
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--all", action="store_true", help="also count blank cells of the curve")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    first = min(path.name for path in options.root.iterdir())
    for size in [options.size] if options.size else SIZES:
        source = ReplaySource(open_replay(options.root, first), hz=4.0)
        asyncio.run(measure(source, size, options.at, options.show, options.all))


if __name__ == "__main__":
    main()
