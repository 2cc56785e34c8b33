"""Prompts made from the blocks of a trace: token counts, common beginnings, and the workloads that use them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.client.choices import RunChoices
from swarmtui.client.plan_builder import build_plan
from swarmtui.model.base import BadInput
from swarmtui.model.load import Open, Sessions
from swarmtui.prompts.corpus import corpus
from swarmtui.prompts.filler_text import Calibration, estimated_calibration, words_for_prompt
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import find_workload, workload_digest
from swarmtui.prompts.traces.play import BlockText, PromptChain
from swarmtui.prompts.traces.recordings import Recordings, live_context
from swarmtui.prompts.validate import validate_workload

SIZE = 16
CALIBRATION = estimated_calibration(9.5, 1.3)


def prompt(blocks: list[int], tokens: int, *, key: str = "1/2", keep_of: list[int] | None = None) -> str:
    """Compose a prompt by itself, or after one that has the same beginning."""
    chain, keep = PromptChain(BlockText(SIZE, CALIBRATION), key, "[n] "), 0
    if keep_of is not None:
        chain.next_prompt(0, keep_of, len(keep_of) * SIZE, "before")
        keep = next((i for i, (a, b) in enumerate(zip(blocks, keep_of, strict=False)) if a != b), len(keep_of))
        keep = min(keep, len(blocks))
    return chain.next_prompt(keep, blocks[keep:], tokens, "now")


@given(
    common=st.lists(st.integers(0, 9), max_size=12),
    first=st.lists(st.integers(10, 19), max_size=12),
    second=st.lists(st.integers(20, 29), max_size=12),
    rest=st.integers(0, SIZE - 1),
)
def test_equal_leading_blocks_are_equal_text_and_no_more(
    common: list[int], first: list[int], second: list[int], rest: int
) -> None:
    one, two = (prompt(blocks, len(blocks) * SIZE + rest) for blocks in (common + first, common + second))
    shared = words_for_prompt(len(common) * SIZE, CALIBRATION) if len(common) * SIZE > CALIBRATION.overhead else 0
    assert one.split()[: shared + 1] == two.split()[: shared + 1]
    assert prompt(common + second, len(common + second) * SIZE + rest, keep_of=common + first) == two
    for text, blocks in ((one, common + first), (two, common + second)):
        assert len(text.split()) - 1 == words_for_prompt(len(blocks) * SIZE + rest, CALIBRATION)


@pytest.mark.parametrize("tail", [5, 11])
def test_prompts_share_the_tokens_of_their_equal_blocks_despite_the_end_of_the_template(tail: int) -> None:
    """A server that caches blocks of 16 tokens finds all of them, and no other."""
    words = len(corpus().words)
    calibration = Calibration(overhead=30.0, by="usage", known=tuple((n, float(n)) for n in range(1, words + 1)))
    for count in range(3, 20):
        first, second = (
            PromptChain(BlockText(SIZE, calibration), "1/2", "")
            .next_prompt(0, [*range(count), last], 400, "now")
            .split()
            for last in (98, 99)
        )
        assert len(first) == len(second) == 370
        words = next(index for index, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
        assert (words + 30 - tail) // SIZE == count


def test_text_depends_on_the_key_only() -> None:
    assert prompt([1, 2, 3], 48) == prompt([1, 2, 3], 48) != prompt([1, 2, 3], 48, key="1/3")


@pytest.mark.parametrize("size", [16, 64, 512])
def test_blocks_at_the_same_place_differ_from_the_first_word_on(size: int) -> None:
    text = BlockText(size, CALIBRATION)
    for index in range(2, 60, 5):
        place = text.block_start(index), text.block_start(index + 1)
        blocks = [text.words_between(*place, f"1/2/{block}") for block in range(40)]
        assert len(set(blocks)) >= 38
        assert max(Counter(block.split()[0] for block in blocks).values()) <= 20


def write_mooncake(path: Path, count: int) -> Path:
    rows = [
        {"timestamp": 500 * n, "input_length": 600, "output_length": 7, "hash_ids": [1, n + 9]} for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_arrivals_are_replayed_at_the_recorded_rate_and_in_order(tmp_path: Path) -> None:
    found = find_workload(str(write_mooncake(tmp_path / "m.jsonl", 5)))
    assert found.workload.load == Open(rate=2.0, arrival="recorded", requests=5)
    assert build_plan(found.workload, RunChoices(time_scale=3.0)).load.rates == (6.0,)
    generator = TaskGenerator(found, seed=1, calibration=None)
    assert list(islice(generator.arrival_times(4.0), 7)) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    first, again, second = generator.task(0, 1, 0), generator.task(7, 1, 0), generator.task(1, 1, 1)
    assert first.replayed is not None and second.replayed is not None
    assert (first.replayed.reusable_tokens, second.replayed.reusable_tokens) == (0, 512)
    assert first.max_tokens == 7 and first.exact and first.extra["ignore_eos"] is True
    # The next run has the same lengths and shares no text with this one.
    assert first.messages[0].content[:9] == second.messages[0].content[:9] != again.messages[0].content[:9]


def test_built_in_agents_are_sessions() -> None:
    found = find_workload("agents")
    assert isinstance(found.workload.load, Sessions)
    plays = TaskGenerator(found, seed=1, calibration=None).plays
    assert len(plays.recordings) == 24
    assert max(one.input_tokens for n in range(24) for one in plays.recordings[n].requests) <= 14_000


def test_digest_covers_the_trace_and_not_its_name(tmp_path: Path) -> None:
    paths = [write_mooncake(tmp_path / name, count) for name, count in (("a.jsonl", 4), ("b.jsonl", 4), ("c.jsonl", 5))]
    first, same, other = (workload_digest(find_workload(str(path))) for path in paths)
    assert first == same != other


@pytest.mark.parametrize(
    ("workload", "options", "problem"),
    [
        ("agents", {"rate": "4"}, "has no arrival times"),
        ("agents", {"rules": "agentx", "max_gap": "3s"}, "set by the rules of agentx"),
        ("agents", {"rules": "agentx", "duration": "30s"}, "set by the rules of agentx"),
        ("chat", {"max_gap": "3s"}, "only for traces of agent sessions"),
        ("chat", {"time_scale": 2.0}, "only for traces of agent sessions"),
    ],
)
def test_options_that_do_not_fit_are_refused(workload: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        build_plan(find_workload(workload).workload, RunChoices(**options))


def test_rules_of_a_benchmark_set_all_at_once() -> None:
    workload = find_workload("agents").workload
    ruled = Sessions(rules="agentx", max_gap="10s", time_scale=1.0, sessions="all", levels=(3,))
    assert build_plan(workload, RunChoices(rules="agentx", levels="3")).load == ruled
    timed = build_plan(workload, RunChoices(duration="30s", max_gap="1s")).load
    assert isinstance(timed, Sessions)
    assert (timed.duration_s, timed.session_limit, timed.max_gap_s) == (30.0, None, 1.0)
    assert build_plan(workload, RunChoices(plan="cliff")).load.replayed


@pytest.mark.parametrize(
    ("requests", "problem"),
    [
        ([], "session s contains no request"),
        ([{"t": 0, "type": "s", "in": 3_000_000, "out": 1}], "session s has a prompt of 3,000,000 tokens"),
        ([{"t": 0, "type": "s", "in": -1, "out": 1}], "requests\\[0\\].in: expected a whole number >= 0"),
    ],
)
def test_traces_that_cannot_be_replayed_are_refused(tmp_path: Path, requests: list[Any], problem: str) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"id": "s", "requests": requests}))
    (found,) = validate_workload(path)
    assert re.search(f"{re.escape(str(path))}: .*{problem}", str(found))


def test_live_context_is_weighted_by_time_and_includes_subagents(tmp_path: Path) -> None:
    def asked(t: float, tokens: int, think: float) -> dict[str, Any]:
        return {"t": t, "type": "s", "in": tokens, "out": 50, "hash_ids": [], "think_time": think}

    # Answers take 1 s. The sub-agent starts at 2 s and holds 450 tokens until 3 s; the parent continues 3 s later,
    # holds 1,050 tokens until then, and 2,050 for 1 s.
    agent = {"t": 1.0, "type": "subagent", "agent_id": "a", "requests": [asked(0.0, 400, 0.0)]}
    session = {"id": "s", "block_size": 64, "requests": [asked(0.0, 1000, 0.0), agent, asked(5.0, 2000, 99.0)]}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(session))
    assert live_context(Recordings([path]), max_gap_s=3.0, time_scale=1.0) == pytest.approx((6 * 1050 + 2050 + 450) / 7)
