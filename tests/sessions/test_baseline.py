"""Which session another one is compared with, the last one before the change, and what the list says of one."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.sessions.index import SessionRow, baseline_of, compared_with, index_json, session_beside
from tests.analysis.level_builders import level, summary

URL = "http://127.0.0.1:8080"


def row(number: int, slots: int | None = 2, **fields: Any) -> SessionRow:
    """The row of the session of that minute, of a server with these slots."""
    known: dict[str, Any] = {
        "id": f"20261117-12{number:02}00-aaaa", "state": "done", "endpoint": URL, "model": "m", "workload": "coding",
        "levels": (1, 4), "goal": "capacity", "flags": {"parallel": str(slots)} if slots else None,
    }  # fmt: skip
    return SessionRow(**known | fields)


def again(number: int, slots: int | None, before: SessionRow, **fields: Any) -> SessionRow:
    return row(number, slots, previous=before.id, repeats=True, **fields)


def test_a_repeated_run_is_compared_with_the_last_one_before_the_change() -> None:
    two = row(1, 2)
    four = again(2, 4, two)
    same = again(3, 4, four)
    eight = again(4, 8, same)
    back = again(5, 4, eight)
    rows = [two, four, same, eight, back]
    assert [baseline_of(rows, one) for one in rows[1:]] == [two.id, two.id, same.id, eight.id]


def test_a_run_in_doubt_is_no_baseline_while_there_is_another_one() -> None:
    two = row(1, 2)
    busy = again(2, 4, two, doubtful=True)
    quiet = again(3, 4, busy)
    eight = again(4, 8, busy)
    assert baseline_of([two, busy, quiet], quiet) == two.id == baseline_of([two, busy, eight], eight)
    assert baseline_of([busy, eight], eight) == busy.id, "there is no other"
    doubted = [row(1, 2, doubtful=True), busy]
    assert baseline_of(doubted, again(5, 4, busy)) == doubted[0].id, "all are in doubt: the last before the change"


def test_of_several_runs_in_doubt_before_the_change_it_is_the_one_with_the_most_agents() -> None:
    """A disturbance only makes a server slower: the last run may be the worst."""
    older, two = row(1, 8, doubtful=True, agents=20), row(2, 2, doubtful=True, agents=12)
    four = again(3, 4, two, doubtful=True, agents=13)
    worse = row(4, 2, doubtful=True, agents=4)
    assert baseline_of([older, two, four, worse], again(5, 4, worse, doubtful=True)) == two.id


def test_without_another_configuration_it_is_the_last_run_that_is_not_in_doubt() -> None:
    first, busy = row(1, 2), row(2, 2, doubtful=True)
    assert baseline_of([first, busy], again(3, 2, busy)) == first.id
    unknown = again(4, None, busy)
    assert baseline_of([first, busy], unknown) == first.id, "flags that are not known decide nothing"


def test_the_choice_of_the_user_counts_even_if_it_is_in_doubt_or_of_the_same_flags() -> None:
    two, busy = row(1, 2), row(2, 4, doubtful=True)
    assert baseline_of([two, busy], row(3, 4, previous=busy.id)) == busy.id


def test_other_endpoints_kinds_workloads_and_unfinished_runs_are_no_baseline() -> None:
    others = [
        row(1, endpoint="http://127.0.0.1:9090"), row(2, goal="sweep"), row(3, workload="chat"), row(4, model="n"),
        row(5, state="interrupted"), row(6, levels=()), row(7, max_tokens=128), row(9),
    ]  # fmt: skip
    assert baseline_of(others, row(8, 4)) == ""


def test_the_list_compares_as_the_run_does() -> None:
    two = row(1, 2)
    busy = again(2, 4, two, doubtful=True)
    quiet = again(3, 4, busy)
    assert session_beside([quiet, busy, two], quiet) == two.id
    assert session_beside([quiet, busy, two], two) == busy.id, "the first one with the next"


def test_one_level_is_no_baseline_unless_it_is_repeated() -> None:
    two = row(1, 2)
    single = row(2, 4, levels=(4,))
    assert baseline_of([two, single], row(3, 4)) == two.id
    assert baseline_of([single], again(3, 4, single)) == single.id


def test_a_repeated_run_that_has_no_level_is_no_baseline() -> None:
    """A restart of the server ended it."""
    two = row(1, 2)
    aborted = again(2, 2, two, state="stopped", levels=())
    assert baseline_of([two, aborted], again(3, 4, aborted)) == two.id
    assert baseline_of([aborted], again(3, 4, aborted)) == ""


def test_a_verdict_is_about_the_baseline_of_a_repeated_run_or_the_one_that_was_chosen() -> None:
    two = row(1, 2)
    four = again(2, 4, two)
    same = again(3, 4, four)
    rows = [two, four, same, row(4, 4)]
    assert [compared_with(rows, one) for one in rows] == ["", two.id, two.id, ""]
    assert compared_with(rows, row(5, 4, previous=four.id)) == four.id


def test_the_best_level_of_the_list_is_that_of_the_answer() -> None:
    """The answer takes the fewest agents where more give hardly any more."""
    said = AnswerSentence(code="best_level", sentence="best with 2 agents")
    answer = Answer(headline=said, limit=said, best_c=2)
    found = msgspec.structs.replace(summary([level(2, tps=618.0), level(4, tps=637.0)]), answer=answer)
    best = msgspec.json.decode(index_json(found, 0))["row"]
    assert (best["best_c"], best["best_out_tps"]) == (2, found.levels[0].headline_tps)
