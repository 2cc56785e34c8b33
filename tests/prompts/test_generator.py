from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.loadgen.dialects import load_dialect
from swarmtui.model.workload import Task, Trace
from swarmtui.prompts.filler_text import Calibration, estimated_calibration
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, builtin_workloads, find_workload, parse_workload
from swarmtui.prompts.sampling import nonce

# The tasks of other workloads than traces have numbers.
NUMBERED = [found for found in builtin_workloads() if not isinstance(found.workload, Trace)]

# What an engine may be asked with, so that it does not use its prefix cache.
UNCACHED = {"cache_prompt": False}
EXACT = estimated_calibration(0.0, 1.0)


def make_workload(text: str) -> WorkloadFile:
    return WorkloadFile(workload=parse_workload(text, "made"), source="made", base=Path(), text=text)


def random_text(more: str) -> WorkloadFile:
    return make_workload(f'kind = "random"\nname = "r"\n{more}')


def outputs(found: WorkloadFile, count: int) -> list[int]:
    source = TaskGenerator(found, seed=3, calibration=EXACT)
    return [source.task(index, 1, index).max_tokens or 0 for index in range(count)]


PINNED = {
    "218e5a4680eb0c63": """
kind = "prompts"
name = "p"
system = "short"
prompts = [{ text = "a", type = "x" }, { text = "b", type = "y" }, { text = "c", type = "x" }, { text = "d" }]
""",
    "25abe1c7ccb8d292": """
kind = "random"
name = "r"
input_tokens = { dist = "normal", mean = 300, sd = 60 }
output_tokens = { dist = "lognormal", median = 400, cv = 0.6 }
""",
    "f01a741e7a5bf721": """
kind = "shared_prefix"
name = "s"
prefix_tokens = 700
input_tokens = { dist = "uniform", low = 20, high = 80 }
output_tokens = { dist = "by_level", tokens = 100, shares = { 2 = [1, 0.3] } }
""",
    "588d67f6c87493dc": """
kind = "conversation"
name = "c"
conversations = [{ turns = ["a", "b"] }, { turns = ["c", "d", "e"] }, { turns = ["f"] }]
""",
}


@pytest.mark.parametrize(("digest", "text"), PINNED.items())
def test_requests_are_reproducible(digest: str, text: str) -> None:
    calibration = estimated_calibration(13.0, 1.1)
    source = TaskGenerator(make_workload(text), seed=7, calibration=calibration, salt="a session")
    tasks = [source.warmup(0), *(source.task(index, 2, index % 8) for index in range(20))]
    sent = b"\n".join(
        load_dialect("chat").body("a model", task, task.messages) + "/".join(map(str, task.followups)).encode()
        for task in tasks
    )
    assert hashlib.sha256(sent).hexdigest()[:16] == digest


@settings(max_examples=30)
@given(st.integers(), st.lists(st.integers(0, 500), min_size=2, max_size=8))
def test_task_is_independent_of_request_order(seed: int, indexes: list[int]) -> None:
    one, other = (TaskGenerator(find_workload("chat"), seed=seed, calibration=None) for _ in range(2))
    assert [one.task(i, 4, i) for i in indexes] == [other.task(i, 4, i) for i in reversed(indexes)][::-1]


@pytest.mark.parametrize("found", NUMBERED, ids=lambda found: str(found.workload.name))
def test_all_tasks_of_a_session_start_differently(found: WorkloadFile) -> None:
    source = TaskGenerator(found, seed=0, calibration=estimated_calibration(400.0, 8.0))
    tasks = [source.task(index, 8, index) for index in range(400)] + [source.warmup(index) for index in range(50)]
    shared = found.workload.cache == "shared"  # then the first message of the user starts differently
    first = [task.messages[1 if shared else 0].content for task in tasks]
    assert len({text[:16] for text in first}) == len(tasks)
    assert all(text[0] == "[" for text in first)


def test_salt_changes_only_the_nonces() -> None:
    plain, salted = (
        TaskGenerator(find_workload("coding"), seed=1, calibration=None, salt=salt) for salt in ("", "session-2")
    )
    for index in range(100):
        one, other = plain.task(index, 1, index), salted.task(index, 1, index)
        assert one.messages[0].content[:11] != other.messages[0].content[:11]
        assert one.messages[0].content[11:] == other.messages[0].content[11:]
        assert one.messages[1:] == other.messages[1:]


def test_seed_changes_the_order() -> None:
    one, other = (TaskGenerator(find_workload("coding"), seed=seed, calibration=None) for seed in (1, 2))
    assert [one.task(i, 1, i).messages[-1] for i in range(64)] != [other.task(i, 1, i).messages[-1] for i in range(64)]


def texts(tasks: list[Task]) -> list[str]:
    return [task.messages[-1].content for task in tasks]


def test_prompts_repeat_only_after_all_were_used_and_in_new_order() -> None:
    source = TaskGenerator(find_workload("coding"), seed=0, calibration=None)
    cycles = [texts([source.task(64 * cycle + i, 4, i) for i in range(64)]) for cycle in range(3)]
    assert all(len(set(cycle)) == 64 for cycle in cycles)
    assert set(cycles[0]) == set(cycles[1]) == set(cycles[2])
    assert cycles[0] != cycles[1] != cycles[2]


def test_levels_get_different_prompts_in_the_same_mixture() -> None:
    source = TaskGenerator(find_workload("coding"), seed=0, calibration=None)
    first = [source.task(index, 1, index) for index in range(4)]
    second = [source.task(4 + index, 2, index) for index in range(8)]
    assert not set(texts(first)) & set(texts(second))
    kinds = [Counter(source.task(16 * block + i, 4, i).type for i in range(16)) for block in range(12)]
    assert all(set(kind.values()) == {4} for kind in kinds)


def test_warmup_prompts_are_never_measured() -> None:
    for found in NUMBERED:
        source = TaskGenerator(found, seed=0, calibration=EXACT)
        warm = set(texts([source.warmup(index) for index in range(20)]))
        assert not warm & set(texts([source.task(index, 1, index) for index in range(100)]))
        assert all((source.warmup(index).max_tokens or 999) <= 64 for index in range(20))


def test_workload_can_set_its_warmup_prompts() -> None:
    source = TaskGenerator(
        make_workload(
            'kind = "prompts"\nname = "p"\nwarmup_prompts = [{ text = "wake up" }]\nprompts = [{ text = "work" }]'
        ),
        seed=0,
        calibration=None,
    )
    assert source.warmup(5).messages[0].content.endswith("] wake up")


def test_options_override_cap_and_temperature() -> None:
    text = """
kind = "prompts"
name = "p"
max_tokens = 100
temperature = 0.7
extra = { top_p = 0.9 }
prompts = [{ text = "a", max_tokens = 50 }, { text = "b" }]
"""
    own = TaskGenerator(make_workload(text), seed=0, calibration=None)
    assert {(t.messages[0].content[-1], t.max_tokens) for t in (own.task(0, 1, 0), own.task(1, 1, 1))} == {
        ("a", 50),
        ("b", 100),
    }
    assert own.task(0, 1, 0).temperature == 0.7
    assert own.task(0, 1, 0).extra == {"top_p": 0.9}
    assert not own.task(0, 1, 0).exact
    overridden = TaskGenerator(make_workload(text), seed=0, calibration=None, max_tokens=7, temperature=0.0)
    assert {(t.max_tokens, t.temperature) for t in (overridden.task(0, 1, 0), overridden.task(1, 1, 1))} == {(7, 0.0)}


def test_no_cap_by_default() -> None:
    assert TaskGenerator(find_workload("coding"), seed=0, calibration=None).task(0, 1, 0).max_tokens is None


def test_random_output_has_exact_length_by_ignore_eos() -> None:
    found = random_text("input_tokens = 20\noutput_tokens = 33\nextra = { min_p = 0.1 }")
    task = TaskGenerator(found, seed=0, calibration=EXACT).task(0, 1, 0)
    assert (task.max_tokens, task.exact, task.extra) == (33, True, {"ignore_eos": True, "min_p": 0.1})
    found = random_text("input_tokens = 20\noutput_tokens = 33\nextra = { ignore_eos = false }")
    assert TaskGenerator(found, seed=0, calibration=EXACT).task(0, 1, 0).extra == {"ignore_eos": False}
    assert TaskGenerator(found, seed=0, calibration=EXACT, max_tokens=5).task(0, 1, 0).max_tokens == 5


def test_warm_workload_has_no_nonce() -> None:
    source = TaskGenerator(
        make_workload('kind = "prompts"\nname = "p"\ncache = "warm"\nprompts = [{ text = "same" }]'),
        seed=0,
        calibration=None,
        cold_extra=UNCACHED,
    )
    assert source.task(0, 1, 0).messages[0].content == "same"
    assert source.task(0, 1, 0).extra == {}
    cold = TaskGenerator(find_workload("coding"), seed=0, calibration=None, cold_extra=UNCACHED)
    assert cold.task(0, 1, 0).extra == UNCACHED


def test_nonce_starts_the_system_message() -> None:
    task = TaskGenerator(find_workload("coding"), seed=0, calibration=None).task(0, 1, 0)
    assert [message.role for message in task.messages] == ["system", "user"]
    assert task.messages[0].content[11:].startswith("You are a careful")
    assert not task.messages[1].content.startswith("[")


def test_shared_prefix_is_followed_by_the_nonce() -> None:
    found = make_workload("""
kind = "shared_prefix"
name = "s"
system = "Be brief."
prefix_tokens = 500
input_tokens = 40
output_tokens = 20
""")
    calibration = Calibration(overhead=10.0, by="usage", known=((400, 500.0), (424, 530.0), (500, 625.0)))
    source = TaskGenerator(found, seed=0, calibration=calibration, cold_extra=UNCACHED)
    tasks = [source.task(index, 4, index) for index in range(50)] + [source.warmup(0)]
    assert len({task.messages[0].content for task in tasks}) == 1
    assert tasks[0].messages[0].content.startswith("Be brief.\n\n")
    assert len(tasks[0].messages[0].content.split()) == 2 + 400
    assert len({task.messages[1].content[:11] for task in tasks}) == 51
    assert len(tasks[0].messages[1].content.split()) == 1 + 24
    assert not any("cache_prompt" in task.extra for task in tasks)


def test_questions_do_not_repeat_the_shared_prefix() -> None:
    found = make_workload("""
kind = "shared_prefix"
name = "s"
prefix_tokens = 4000
input_tokens = 500
output_tokens = 20
""")
    known = tuple((words, 2.0 * words) for words in range(64, 6400, 64))
    source = TaskGenerator(found, seed=0, calibration=Calibration(overhead=10.0, by="usage", known=known))
    prefix, question = (message.content.split() for message in source.task(0, 1, 0).messages)
    assert abs(len(prefix) - 2000) < 5 and len(question) == 1 + 245
    fours = set(zip(prefix, prefix[1:], prefix[2:], prefix[3:], strict=False))
    assert not any(four in fours for four in zip(question, question[1:], question[2:], question[3:], strict=False))


def test_conversation_has_first_turn_and_followups() -> None:
    source = TaskGenerator(find_workload("conversation"), seed=0, calibration=None, cold_extra=UNCACHED)
    task = source.task(0, 1, 0)
    assert [message.role for message in task.messages] == ["system", "user"]
    assert 2 <= len(task.followups) <= 4
    assert task.extra == {}


def test_by_level_gives_each_position_its_share() -> None:
    found = random_text("""
input_tokens = 10
[output_tokens]
dist = "by_level"
tokens = 1000
shares = { 2 = [1, 0.36], 3 = [1, 0.3, 0.25] }
""")
    source = TaskGenerator(found, seed=0, calibration=EXACT)
    assert [source.task(index, 2, index).max_tokens for index in range(4)] == [1000, 360, 1000, 360]
    assert [source.task(index, 3, index - 7).max_tokens for index in range(7, 11)] == [1000, 300, 250, 1000]
    assert [source.task(index, 1, index).max_tokens for index in range(2)] == [1000, 1000]
    assert source.task(0, 5, 4).max_tokens == 1000
    shorter = TaskGenerator(found, seed=0, calibration=EXACT, max_tokens=100)
    assert [shorter.task(index, 3, index).max_tokens for index in range(3)] == [100, 30, 25]


@pytest.mark.parametrize(
    ("length", "mean", "low", "high"),
    [
        ("64", 64, 64, 64),
        ('{ dist = "fixed", value = 64 }', 64, 64, 64),
        ('{ dist = "uniform", low = 10, high = 20 }', 15, 10, 20),
        ('{ dist = "normal", mean = 500, sd = 50, low = 400, high = 600 }', 500, 400, 600),
        ('{ dist = "lognormal", median = 400, cv = 0.5 }', 400 * 1.25**0.5, 40, 4000),
        ('{ dist = "cycle", values = [1, 2, 6] }', 3, 1, 6),
    ],
)
def test_lengths_follow_the_distribution(length: str, mean: float, low: int, high: int) -> None:
    drawn = outputs(random_text(f"input_tokens = 2\noutput_tokens = {length}"), 3000)
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.03)
    assert low <= min(drawn) <= max(drawn) <= high


def test_spread_of_normal_and_lognormal_lengths() -> None:
    normal = outputs(random_text('input_tokens = 2\noutput_tokens = { dist = "normal", mean = 1000, sd = 100 }'), 3000)
    assert statistics.stdev(normal) == pytest.approx(100, rel=0.06)
    log = outputs(random_text('input_tokens = 2\noutput_tokens = { dist = "lognormal", median = 900, cv = 0.4 }'), 3000)
    assert statistics.stdev(log) / statistics.fmean(log) == pytest.approx(0.4, rel=0.08)
    assert statistics.median(log) == pytest.approx(900, rel=0.03)


def test_cycle_rotates_and_uniform_includes_both_ends() -> None:
    assert outputs(random_text('input_tokens = 2\noutput_tokens = { dist = "cycle", values = [5, 9] }'), 4) == [
        5,
        9,
        5,
        9,
    ]
    drawn = outputs(random_text('input_tokens = 2\noutput_tokens = { dist = "uniform", low = 1, high = 4 }'), 400)
    assert set(drawn) == {1, 2, 3, 4}


def test_lengths_without_calibration_are_estimates() -> None:
    task = TaskGenerator(find_workload("random-1k-1k"), seed=0, calibration=None).task(0, 1, 0)
    assert 512 <= len(task.messages[0].content.split()) <= 1024


def test_shuffle_is_independent_of_the_folder(written: Callable[[str], WorkloadFile], tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("---\nfirst\nprompt\n---\n\nsecond\n---\nthird\n", encoding="utf-8")
    source = TaskGenerator(written('kind = "prompts"\nname = "f"\nfile = "p.txt"'), seed=0, calibration=None)
    assert sorted(text[11:] for text in texts([source.task(i, 1, i) for i in range(3)])) == [
        "first\nprompt",
        "second",
        "third",
    ]


@given(st.sets(st.integers(0, 10**9), min_size=2, max_size=50), st.integers(), st.text(max_size=9))
def test_nonces_are_unique_and_have_one_format(numbers: set[int], seed: int, salt: str) -> None:
    nonces = {nonce(number, seed, salt) for number in numbers}
    assert len(nonces) == len(numbers)
    assert all(re.fullmatch(r"\[(\d[a-z]){4}\] ", each) for each in nonces)
