"""Every sentence of an answer: when it is said, that it is not said without its facts, and its words."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.answer.facts import AnswerFacts, Missed
from swarmtui.analysis.answer.rows import AnswerRow
from swarmtui.analysis.answer.table import TABLE, rows_said
from swarmtui.numbers import MISSING
from tests.analysis.answer_cases import (
    AT_SLOTS,
    BUSY,
    CASES,
    CLIFF,
    FEW,
    FLAT,
    FULL,
    HARDWARE,
    JOINT,
    NO_CONTEXT,
    SEARCHED,
    SLOW_START,
    SLOW_STREAM,
    SWEEP,
    since,
)


def test_nothing_is_to_be_decided_about_a_change_that_helped_or_has_no_limits() -> None:
    for found in (since(decided=True), since(no_limit=True)):
        assert not rows_said("change", AnswerFacts(**found))


def test_a_server_that_is_taken_back_needs_no_flag_that_was_left_out() -> None:
    worse = since(decided=True, worse=True, had=(13, 8)), since(answers_s=(1.37, 1.9), same=True)
    for found in worse:
        assert rows_said("change", AnswerFacts(**(NO_CONTEXT | found)))[0].code in ("go_back", "faster_before")


def row(question: str, code: str) -> AnswerRow:
    (found,) = [one for one in TABLE if (one.question, one.code) == (question, code)]
    return found


def test_every_row_of_the_table_has_a_case() -> None:
    assert {(one.question, one.code) for one in TABLE} == {(question, code) for question, code, _, _ in CASES}


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({}, ["more_slots", "longer_search"]),
        ({"low": 18, "high": 18}, ["more_slots"]),
        ({"low": 9, "high": 22}, ["unsure_search", "more_slots"]),
        # A longer search does not change what the server does from minute to minute.
        ({"low": 18, "high": 30, "varies": "the range allows for …"}, ["more_slots"]),
        ({"high": None, "low": 9}, ["unsure_search", "more_slots"]),
        (BUSY | {"low": 9, "host": "host CPU 60 %"}, ["quiet_host", "more_slots"]),
        (BUSY | {"low": 9}, ["measure_again", "more_slots"]),
        ({"client": "client CPU 98 %", "disturbed": "the client read late"}, ["client_limit", "more_slots"]),
        ({"low": 9, "high": 22, "sure": 0.99}, ["more_slots"]),
    ],
)
def test_what_makes_an_answer_surer_comes_before_what_changes_the_server(
    changed: dict[str, Any], codes: list[str]
) -> None:
    facts = AnswerFacts(**(AT_SLOTS | {"more_slots": "--max-num-seqs 32"} | changed))
    assert [row.code for row in rows_said("next", facts)] == codes


def test_requests_that_a_restart_failed_do_not_ask_for_the_log_of_the_server() -> None:
    failing = {"failing": (4, 9, 9, "refused"), "server_changed": "after 3 s: --parallel 2 → 4", "host": "60 %"}
    found = AnswerFacts(**(SWEEP | failing))
    assert [one.code for one in rows_said("next", found)][:2] == ["server_changed", "quiet_host"]


PREDICTED: dict[str, Any] = {
    "more_slots": "--parallel 8", "more_at_once": 24, "more_agents": 30, "more_tps": 0.2, "enough_slots": 7,
    "step_law": "a step takes 2 + 5·b ms", "narrow_kv": 0.3, "narrow_kv_flag": "--kv-cache-dtype fp8", "kv_size": "16",
    "smaller_weights": 0.5, "because": "15.3 GB per step",
}  # fmt: skip


def test_nothing_is_predicted_from_a_doubtful_measurement() -> None:
    sure, doubted = (
        [row.code for row in rows_said("next", AnswerFacts(**(AT_SLOTS | PREDICTED | {"doubts": doubts})))]
        for doubts in ((), ("tokens were estimated",))
    )
    assert sure == ["more_slots_agents", "narrow_kv", "smaller_weights", "longer_search"]
    assert doubted == ["more_slots", "longer_search"]


@pytest.mark.parametrize(("question", "code", "facts", "words"), CASES)
def test_row_is_said_with_its_facts_and_not_without_any_of_them(
    question: Any, code: str, facts: dict[str, Any], words: str
) -> None:
    known, one = AnswerFacts(**facts), row(question, code)
    said = rows_said(question, known)
    assert one in said and (question == "next" or one is said[0])
    assert one.text(known) == words
    for name in one.needs:
        assert one not in rows_said(question, msgspec.structs.replace(known, **{name: None})), name


@pytest.mark.parametrize(
    ("facts", "code", "command"),
    [
        (SWEEP | {"grows": True}, "higher_levels", "swarmtui run --find-cliff"),
        (SWEEP | {"grows": True, "searched_cliff": True}, "higher_levels", "swarmtui run --levels 64,128"),
        (SEARCHED | {"searched": False, "c": None, "high": None}, "more_agents", "swarmtui capacity"),
        (SEARCHED | {"c": None, "high": None, "at_highest": True}, "more_agents", "swarmtui capacity --max-agents 128"),
    ],
)
def test_no_step_repeats_what_was_just_measured(facts: dict[str, Any], code: str, command: str) -> None:
    (step,) = rows_said("next", AnswerFacts(**facts))
    assert (step.code, step.command(AnswerFacts(**facts))) == (code, command)


@pytest.mark.parametrize(("question", "code", "facts", "words"), CASES)
def test_a_sentence_about_one_is_in_the_singular(question: Any, code: str, facts: dict[str, Any], words: str) -> None:
    ones: dict[str, Any] = {name: 1 for name, value in facts.items() if type(value) is int and value}
    ones |= {"preemptions": 1.0, "queued": 1.0, "preempted": (1, 1.0, 0.9), "failing": (1, 1, 1, "reset")}
    known = AnswerFacts(**(facts | ones))
    said = f"{row(question, code).text(known)} {row(question, code).evidence(known)}"
    # "1 of 1 requests" has its plural from what it is a part of.
    assert not re.search(r"(?<![\w.,–=])(?<!of )1 [a-z]{2,}s\b|\b1 [a-z]+ (were|are|have|wait|add)\b", said), said


ALL = AnswerFacts(
    **(AT_SLOTS | CLIFF | SEARCHED),
    open_loop="keeps up with 8 requests/s", kv_use=0.5, preemptions=2.0, hits=("0.9", "0.7"), failed=3, requests=40,
    error="http_500", ttft_s=2.0, prefill_s=1.5, client="client CPU 98 %", host="host CPU 90 %", host_share=0.5,
    one_tps=22.0,
    cached="40 % cached",
    more_slots="--parallel 8", more_at_once=24, more_agents=30, more_tps=0.2, rate_limit=20.0, enough_slots=7,
    more_stream=150.0, full_half_width=0.01, kv_fits=40, **FULL, **FLAT,
    step_law="a step takes 2 + 5·b ms", queue_evidence="C=8 compared with C=4", full_kv=(8, 0.97),
    preempted=(8, 12.0, 0.9), power="C=8: 62 %", drafts=("2", "C=2: 30 %"), heads=(3, 40),
    binds="bandwidth", smaller_weights=0.5, narrow_kv=1.0, narrow_kv_flag="--kv-cache-dtype fp8",
    kv_size="KV cache of 65,536 tokens with 16 bits", eager="--enforce-eager", **HARDWARE,
)  # fmt: skip
OPTIONAL = [name for name in AnswerFacts.__struct_fields__ if getattr(AnswerFacts(), name) is None]


@settings(max_examples=200, deadline=None)
@given(st.sets(st.sampled_from(OPTIONAL)), st.integers(0, 3), st.sampled_from([SLOW_START, FEW, SLOW_STREAM, JOINT]))
def test_no_sentence_is_said_where_its_facts_are_missing(missing: set[str], levels: int, missed: Missed) -> None:
    some = msgspec.structs.replace(ALL, missed=missed, levels=levels)
    known = msgspec.structs.replace(some, **dict.fromkeys(missing))
    for question in ("headline", "limit"):
        assert rows_said(question, known), "these questions always have an answer"
    for one in TABLE:
        if not one.is_said(known):
            continue
        assert not missing & set(one.needs)
        text = " ".join((one.text(known), one.command(known), one.evidence(known)))
        assert "None" not in text and MISSING not in text.replace("17–19", ""), (one.code, text)
