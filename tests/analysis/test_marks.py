"""The marked levels never contradict the answer."""

from __future__ import annotations

import re

import msgspec

from swarmtui.analysis.capacity.marks import LevelMarks, level_marks
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.findings import LevelState, SearchedLevel, SearchState
from swarmtui.report.charts import curve_charts
from swarmtui.report.dot_chart import paint_charts
from swarmtui.report.levels import level_table
from swarmtui.report.svg import draw_stacked
from tests.analysis.level_builders import level

LEVELS = [level(c, tps=tps) for c, tps in ((1, 20.0), (2, 40.0), (3, 40.0), (12, 41.0), (16, 41.0))]
VERDICTS: tuple[tuple[int, int, LevelState], ...] = ((3, 9, "kept"), (12, 6, "unsure"), (16, 0, "missed"))
SAID = AnswerSentence(code="x", sentence="x")


def answered(agents: int | None, missed: int | None, high: int | None = None) -> Answer:
    return Answer(headline=SAID, limit=SAID, agents=agents, missed_c=missed, high=high)


def test_the_agents_of_the_answer_are_marked_and_the_first_missed_level() -> None:
    marks = level_marks(LEVELS, answer=answered(12, 16))
    table = level_table(LEVELS, marks=marks)
    assert [row[0].text for row in table.rows] == ["1", "2", "3", "▸12", "▼16"]
    assert table.note.endswith("▸ most agents that keep the SLO · ▼ first level past it.")


def test_what_is_missed_while_the_server_looked_slower_has_the_sign_of_doubt() -> None:
    disturbed = msgspec.structs.replace(answered(12, 16), disturbed="the host was busy")
    marks = level_marks(LEVELS, answer=disturbed)
    table = level_table(LEVELS, marks=marks)
    assert [(row[0].text, row[0].code) for row in table.rows[-2:]] == [("▸12", "kept"), ("?16", "unknown")]
    assert "▼" not in table.note and "? not sure: something else slowed the server" in table.note
    upper, lower = curve_charts(LEVELS, marks)
    assert upper.boundary == lower.boundary == ((12, 16), None)
    assert upper.series[0].marks == ((12.0, "kept"), (16.0, "unknown"))
    drawn = "".join(text for row in paint_charts((upper,), 60, 12) for text, _ in row)
    assert "kept ┊ ?" in drawn and "missed" not in drawn and "▼" not in drawn
    picture, _ = draw_stacked((upper, lower))
    assert ">not sure</text>" in picture and "missed" not in picture and "past it" not in picture


def test_only_a_level_past_the_range_of_the_answer_surely_misses_the_slo() -> None:
    assert level_marks(LEVELS, answer=answered(3, 16, 12)) == LevelMarks(True, 3, 16, missed=16)
    for open_range in (answered(3, 12, None), answered(3, 12, 12)):
        assert level_marks(LEVELS, answer=open_range) == LevelMarks(True, 3, 12)


def test_what_a_search_leaves_open_is_between_two_lines_of_its_picture() -> None:
    levels = tuple(SearchedLevel(c=c, visits=1, n=9, good=good, state=state) for c, good, state in VERDICTS)
    marks = level_marks(LEVELS, search=SearchState(goal="capacity", low=3, at_least=3, high=12, levels=levels))
    assert marks == LevelMarks(True, 3, 12, doubted=True, missed=16, so_far=True)
    upper, lower = curve_charts(LEVELS, marks)
    assert upper.boundary == lower.boundary == ((3, 12), (12, 16))
    picture, _ = draw_stacked((upper, lower))
    names = re.findall(r">(kept|not sure|\?|missed)</text>", picture)
    assert sorted(names) == ["kept", "missed", "not sure"]


def test_nothing_is_marked_if_no_agent_keeps_the_slo() -> None:
    assert level_marks(LEVELS, answer=answered(0, 1)) == LevelMarks(True, None, None)


def test_a_search_marks_what_it_has_found_so_far() -> None:
    """A level that is kept by a few requests only is no answer yet."""
    known = SearchState(goal="capacity", low=12, at_least=3, high=16)
    marks = level_marks(LEVELS, search=known)
    assert marks == LevelMarks(True, 3, 16, so_far=True)
    assert level_table(LEVELS, marks=marks).note.endswith(
        "▸ most agents that keep the SLO so far · ▼ first level past it."
    )
    undecided = msgspec.structs.replace(known, at_least=None)
    assert level_marks(LEVELS, search=undecided) == LevelMarks(True, None, None, so_far=True)


def test_without_an_slo_the_best_level_is_marked() -> None:
    for answer, search in ((answered(None, None), None), (None, SearchState(goal="cliff", low=3, high=16))):
        found = level_marks(LEVELS, answer=answer, search=search)
        assert not found.by_slo and found.best == 2


def test_a_sweep_that_runs_marks_no_level_of_few_requests() -> None:
    """One request of each level decides nothing; once the session has ended, the answer says what it says."""
    figures = ((1, 20.0, 0.1), (2, 40.0, 0.1), (4, 41.0, 3.0), (8, 41.0, 9.0))
    few, enough = ([level(c, tps=tps, ttft=ttft, n=n) for c, tps, ttft in figures] for n in (1, 16))
    assert level_marks(few) == LevelMarks(False, None, None)
    assert level_marks(enough) == level_marks(few, answer=answered(None, None)) == LevelMarks(False, 2, 4)
    assert level_marks([*enough[:2], *few[2:]]) == LevelMarks(False, 2, None)
