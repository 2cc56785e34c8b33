"""Where a level has the sign of doubt, its reason is on the screen, at each size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarmtui.analysis.capacity.marks import LevelMarks
from swarmtui.analysis.capacity.words import unsure_reasons
from swarmtui.analysis.compare.sessions import compare
from swarmtui.analysis.limits.slo import SloTally, parse_slo
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.findings import Goodput, SearchedLevel, SearchState
from swarmtui.report.comparison import comparison_blocks
from swarmtui.report.levels import level_table, mark_names, sign_names, slo_cells
from swarmtui.report.text import paint
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.sessions.compare_screen import CompareScreen
from tests.analysis.level_builders import level, summary
from tests.analysis.test_compare_agents import quick_search
from tests.tui.conftest import Until
from tests.tui.frame_builders import ended_app, frame
from tests.tui.screen_text import screen_text

SAID = AnswerSentence(code="capacity", sentence="4 agents")
KEPT = SearchedLevel(c=4, visits=2, n=34, good=34, state="kept", room=0.4)
FEW = SearchedLevel(c=1, visits=1, n=8, good=8, state="unsure", room=0.5)
DIFFERS = SearchedLevel(c=5, visits=2, n=34, good=20, state="unsure", kept_visits=1, missed_visits=1, close=True)
LATE = SearchedLevel(c=8, visits=1, n=7, good=0, state="unsure", room=-1.0)
CLOSE = SearchedLevel(c=6, visits=1, n=30, good=28, state="unsure", close=True)


def search(*levels: SearchedLevel, **fields: Any) -> SearchState:
    return SearchState(goal="capacity", low=4, high=8, levels=levels, **fields)


@pytest.mark.parametrize(
    ("level", "next_c", "disturbed", "reason"),
    [
        (FEW, None, False, "few"),
        (FEW, None, True, "few"),
        (LATE, None, True, "slowed"),
        (LATE, None, False, "few"),
        (LATE, 8, False, "running"),
        (DIFFERS, None, True, "differs"),
        (CLOSE, None, False, "close"),
    ],
)
def test_each_level_that_is_not_decided_has_its_reason(
    level: SearchedLevel, next_c: int | None, disturbed: bool, reason: str
) -> None:
    found = search(KEPT, level, next_c=next_c)
    assert unsure_reasons((), found, disturbed=disturbed) == (reason,)
    assert unsure_reasons((), search(KEPT), disturbed=disturbed) == ()


@pytest.mark.parametrize(("disturbed", "reason"), [(True, "slowed"), (False, "few")])
def test_a_sweep_has_the_same_reasons(disturbed: bool, reason: str) -> None:
    slo = parse_slo("ttft_p90=2s")

    def judged(good: int, n: int) -> Goodput:
        tally = SloTally(slo)
        tally.add_counts(2, [(good, n)])
        return Goodput(
            c=2, n=n, good=good, share=good / n, per_s=None, out_tps=None, kept=None, conditions=tally.conditions()
        )

    assert unsure_reasons([judged(4, 8)], None, disturbed=disturbed) == (reason,)
    assert unsure_reasons([judged(8, 8)], None, disturbed=disturbed) == ("few",)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(
    ("others", "disturbed", "said"),
    [
        ((FEW,), "", ("few requests",)),
        ((FEW, LATE), "the host was busy", ("few requests", "server")),
        ((FEW, DIFFERS, LATE), "the host was busy", ("few requests", "visits differ", "server")),
    ],
)
async def test_the_reason_is_in_the_heading_of_the_levels(
    size: tuple[int, int], others: tuple[SearchedLevel, ...], disturbed: str, said: tuple[str, ...]
) -> None:
    searched = sorted((KEPT, *others), key=lambda one: one.c)
    answer = Answer(headline=SAID, limit=SAID, agents=4, low=4, high=None if disturbed else 7, missed_c=8,
                    quality="doubtful" if disturbed else "ok", disturbed=disturbed, doubts=disturbed)  # fmt: skip
    shown = msgspec.structs.replace(
        frame(4), status="ended", answer=answer, search=search(*searched), provisional=(),
        levels=tuple(level(one.c, tps=80.0) for one in searched),
    )  # fmt: skip
    app = ended_app(shown)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        heading = next(line for line in screen_text(app).splitlines() if "[4] levels" in line)
        assert "? " in heading and all(words in heading for words in said), heading


def test_each_version_of_the_legend_has_the_reason() -> None:
    marks = LevelMarks(True, 4, 8)
    versions = sign_names(marks, (), search(FEW, KEPT, DIFFERS))
    assert all("few requests, visits differ" in text for text in versions) and len({*map(len, versions)}) > 2
    assert versions[0].startswith("▸ most agents that keep the SLO · ▼ first level past it")
    assert sign_names(marks, (), search(KEPT)) == mark_names(marks), "nothing is left open"


def test_the_table_of_the_shell_says_the_reason() -> None:
    found = search(FEW, KEPT)
    table = level_table([level(1), level(4)], slo=slo_cells((), found), search=found, marks=LevelMarks(True, 4, None))
    assert "▸ most agents that keep the SLO · ? not sure: too few requests." in table.note


def test_curves_of_two_sessions_have_the_signs_of_both() -> None:
    busy, calm = LevelMarks(True, 2, 3, doubted=True, disturbed=True), LevelMarks(True, 4, 5)
    assert mark_names(busy, calm)[1] == "▸ most agents · ? server slowed · ▼ past it"
    assert mark_names(calm, calm)[1] == "▸ most agents · ▼ past it"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_curves_of_a_comparison_say_why_a_level_is_not_sure(
    size: tuple[int, int], tmp_path: Path, until: Until
) -> None:
    ids = ("20261115-014455-3f9a", "20261115-020000-aaaa")
    both = [quick_search(id, 4, disturbed=busy) for id, busy in zip(ids, ("the host was busy", ""), strict=True)]
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=size) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        app.push_screen(CompareScreen(tmp_path, both, dict(zip(ids, ("before", "after"), strict=True))))
        await until(lambda: "[1] answer" in screen_text(app))
        if size == (80, 24):
            await pilot.press("2")
        await until(lambda: "[2] curves" in screen_text(app))
        heading = next(line for line in screen_text(app).splitlines() if "[2] curves" in line)
        assert "? server slowed" in heading, heading


def test_a_change_that_is_not_sure_says_why() -> None:
    """In the bars, and in the figures side by side."""
    runs = [100.0, 110.0, 90.0, 100.0], [103.0, 93.0, 113.0, 103.0]
    a, b = (summary((level(4, tps=tps[0], runs=tps),), id) for id, tps in zip("ab", runs, strict=True))
    said = " ".join(paint(comparison_blocks(compare([a, b]), {})).split())
    assert "? +3.0 %" in said and said.count("? may be chance") == 2
    assert said.count("?: may be chance.") == 1
    (pair,) = compare([a, b]).pairs
    table = level_table(b.levels, baseline=pair)
    assert "?: the change may be chance." in table.note
