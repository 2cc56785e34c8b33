"""Remarks on levels: one line for each kind."""

from __future__ import annotations

from swarmtui.model.findings import Finding
from swarmtui.report.remarks import grouped_remarks, remarks
from tests.analysis.level_builders import level


def flag(code: str, text: str) -> Finding:
    return Finding(code=code, text=text)


def test_a_remark_that_is_the_same_everywhere_is_said_once() -> None:
    found = [level(c, flags=(flag("read_stamps", "no kernel timestamps"),)) for c in (1, 2, 4)]
    assert remarks(found) == ["C=1,2,4: no kernel timestamps"]
    assert grouped_remarks(found) == ("arrival times are less exact than those of the kernel in 3 levels",)


def test_figures_of_the_last_level_stand_for_a_kind() -> None:
    found = [level(c, flags=(flag("errors", f"{c} of 9 requests failed"),)) for c in (1, 2, 4)]
    assert remarks(found) == ["C=1,2,4: requests failed; at C=4 4 of 9 requests failed"]


def test_answers_at_the_token_limit_are_counted_once_for_all_levels() -> None:
    flags = (flag("cap_hits", "3 of 9 finished answers were cut at the token limit"),)
    found = [level(c, n=9, ok=9, cap_hits=3, flags=flags) for c in (1, 2)]
    assert remarks(found) == ["6 of 18 finished answers ended at the token limit"]
    assert grouped_remarks(found) == ("6 of 18 finished answers ended at the token limit",)
    assert remarks([level(1)]) == [] and grouped_remarks([level(1)]) == ()


def test_each_alarm_is_a_line_of_its_own() -> None:
    found = [level(c, flags=(flag("answers_worse", f"{c} answers are worse"),)) for c in (2, 4)]
    assert remarks(found) == ["✗ C=2: 2 answers are worse", "✗ C=4: 4 answers are worse"]
    assert grouped_remarks(found) == ()


def test_what_is_not_grouped_is_said_of_each_level() -> None:
    found = [level(c, flags=(flag("canaries", f"{c} of 9 canaries pass"),)) for c in (1, 2)]
    assert remarks(found) == ["C=1: 1 of 9 canaries pass", "C=2: 2 of 9 canaries pass"]
    assert grouped_remarks(found) == ("canaries at C=1 and C=2",)
