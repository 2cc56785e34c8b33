from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.model.base import BadInput
from swarmtui.model.workload import Message, RandomText, SharedPrefix, Trace
from swarmtui.prompts.corpus import corpus
from swarmtui.prompts.filler_text import (
    Calibration,
    calibration_texts,
    estimated_calibration,
    extend_calibration,
    fit_calibration,
    longest_prompt,
    make_filler,
    needs_calibration,
    words_for_prompt,
    words_for_tokens,
)
from swarmtui.prompts.generator import TaskGenerator
from swarmtui.prompts.library import WorkloadFile, builtin_workloads, parse_workload

Tokenizer = Callable[[str], int]


def by_hash(text: str) -> int:
    """Three of ten words have two tokens; alternating digits and letters, as in the nonce, one each."""
    return sum(
        len(word) if word.startswith("[") else 2 if zlib.crc32(word.encode()) % 10 < 3 else 1 for word in text.split()
    )


def by_letters(text: str) -> int:
    """Split long words; the space belongs to the word."""
    return sum(-(-len(word) // 4) for word in text.split())


def by_bytes(text: str) -> int:
    return len(text.encode())


def one_each(text: str) -> int:
    return len(text.split())


def small_vocabulary(text: str) -> int:
    """One to three tokens per word: more for long words, and for later ones of the list."""
    return sum(1 + (len(word) > 3) + (len(word) > 4 and word > "c") for word in text.split())


TOKENIZERS = [by_hash, by_letters, by_bytes, one_each]


def prompt_tokens(messages: tuple[Message, ...], tokenizer: Tokenizer, template: int) -> int:
    """Count like a server: the tokens of the chat template and of the content."""
    return template + sum(tokenizer(message.content) for message in messages)


def calibrated(tokenizer: Tokenizer, template: int, system: str = "", longest: float = inf) -> Calibration:
    before = (Message(role="system", content=system),) if system else ()
    probes = calibration_texts(5)
    counts = [prompt_tokens((*before, Message(role="user", content=t)), tokenizer, template) for t in probes]
    return extend_calibration(fit_calibration(probes, counts, "usage"), tokenizer, longest)


def random_text(tokens: int, system: str) -> WorkloadFile:
    text = f'kind = "random"\nname = "r"\ninput_tokens = {tokens}\noutput_tokens = 8\nsystem = "{system}"'
    return WorkloadFile(workload=parse_workload(text, "made"), source="made", base=Path(), text=text)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@settings(max_examples=40)
@given(
    tokens=st.integers(200, 9000),
    seed=st.integers(0, 99),
    system=st.sampled_from(["", "You are a terse helper."]),
    counted=st.sampled_from([0.0, 1000.0, 9000.0]),
)
def test_prompt_lengths_are_within_two_percent(
    tokenizer: Tokenizer, tokens: int, seed: int, system: str, counted: float
) -> None:
    """They are, however much of the corpus was counted."""
    calibration = calibrated(tokenizer, 11, system, counted)
    source = TaskGenerator(random_text(tokens, system), seed=seed, calibration=calibration)
    for index in range(3):
        length = prompt_tokens(source.task(index, 1, index).messages, tokenizer, 11)
        # In a vocabulary of single letters, code has longer words than prose. By hash, a word of code has few tokens.
        rel, least = (0.03, 20) if tokenizer is by_bytes else (0.02, 15 if tokenizer is by_hash else 0)
        assert length == pytest.approx(tokens, rel=rel, abs=least)


@pytest.mark.parametrize("tokens", range(100, 260, 7))
def test_short_prompts_are_within_two_percent_or_a_word_in_a_small_vocabulary(tokens: int) -> None:
    """There the first words of the corpus have fewer tokens than its mean, and a word of code has several."""
    source = TaskGenerator(random_text(tokens, ""), seed=1, calibration=calibrated(small_vocabulary, 20))
    counted = prompt_tokens(source.task(0, 1, 0).messages, small_vocabulary, 20)
    assert counted == pytest.approx(tokens, rel=0.02, abs=4)


def test_calibration_finds_overhead_and_tokens_of_the_whole_corpus() -> None:
    found = calibrated(one_each, 11)
    assert found.overhead == pytest.approx(12.0)  # the template and the nonce
    assert all(tokens == pytest.approx(words) for words, tokens in found.known)
    assert found.cycle == len(corpus().words)
    assert found.by == "usage"


def test_only_what_the_longest_prompt_needs_is_counted() -> None:
    texts: list[str] = []

    def count(text: str) -> int:
        texts.append(text)
        return one_each(text)

    probes = calibration_texts(5)
    first = fit_calibration(probes, [one_each(text) for text in probes], "usage")
    assert extend_calibration(first, count, 100.0) == first and not texts
    found = extend_calibration(first, count, 1000.0)
    assert 1000 <= found.cycle < 1064 and len(texts) < 20
    assert extend_calibration(first, count, inf).cycle == len(corpus().words)
    assert len(texts) < 150


def cannot_count(text: str) -> None:
    return None


def with_five_more(text: str) -> int:
    return one_each(text) + 5


@pytest.mark.parametrize("count", [cannot_count, with_five_more])
def test_first_passages_are_repeated_if_others_cannot_be_counted(count: Callable[[str], int | None]) -> None:
    probes = calibration_texts(5)
    first = fit_calibration(probes, [one_each(text) for text in probes], "usage")
    assert extend_calibration(first, count, inf) is first
    text = make_filler(3 * first.cycle, Random(1), first.cycle)
    assert set(text.split()) == {word.strip() for word in corpus().words[: first.cycle]}


def test_tokens_at_the_beginning_of_a_text_by_itself_are_not_counted() -> None:
    probes = calibration_texts(5)
    first = fit_calibration(probes, [one_each(text) for text in probes], "usage")
    found = extend_calibration(first, lambda text: one_each(text) + 1, inf)
    assert found.known[-1] == (len(corpus().words), float(len(corpus().words)))


def test_text_that_was_counted_before_a_server_stops_counting_is_used() -> None:
    left = iter(range(8))
    probes = calibration_texts(5)
    first = fit_calibration(probes, [one_each(text) for text in probes], "usage")
    found = extend_calibration(first, lambda text: one_each(text) if next(left, None) is not None else None, inf)
    assert len(found.known) == len(first.known) + 4
    assert found.cycle == first.cycle + 4 * 64


@given(
    counts=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    asked=st.lists(st.floats(-50.0, 20_000.0), min_size=2, max_size=30),
)
def test_more_tokens_never_have_fewer_words(counts: list[int], asked: list[float]) -> None:
    tokens = 0.0
    known = tuple((corpus().ends[at], tokens := tokens + count) for at, count in enumerate(counts))
    calibration = Calibration(overhead=9.0, by="usage", known=known)
    found = [words_for_tokens(tokens, calibration) for tokens in sorted(asked)]
    assert found == sorted(found) and found[0] >= 1
    for words, tokens in known:
        assert words_for_tokens(tokens, calibration) == words


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [
        ("300", 300),
        ('{ dist = "fixed", value = 300 }', 300),
        ('{ dist = "uniform", low = 20, high = 80 }', 80),
        ('{ dist = "cycle", values = [5, 70, 6] }', 70),
        ('{ dist = "normal", mean = 300, sd = 60 }', inf),
        ('{ dist = "lognormal", median = 300, cv = 1, high = 900 }', 900),
        ('{ dist = "by_level", tokens = 100, shares = { 2 = [1, 0.3] } }', 100),
    ],
)
def test_longest_prompt_is_known_before_the_first(lengths: str, longest: float) -> None:
    text = f'name = "r"\ninput_tokens = {lengths}\noutput_tokens = 8\n'
    assert longest_prompt(parse_workload(f'kind = "random"\n{text}', "made")) == longest
    prefixed = parse_workload(f'kind = "shared_prefix"\nprefix_tokens = 1000\n{text}', "made")
    assert longest_prompt(prefixed) == 1000 + longest


def test_calibration_texts_differ_by_session() -> None:
    texts = calibration_texts(1, "a")
    assert len(texts) == 19
    assert texts[0][:11] != texts[1][:11]
    assert texts[0] != calibration_texts(1, "b")[0]
    assert texts == calibration_texts(1, "a")


def test_prompt_shorter_than_the_template_has_one_word() -> None:
    assert words_for_prompt(5, estimated_calibration(11.0, 1.3)) == 1


@pytest.mark.parametrize(
    "counts",
    [(0, 0), (1, 1), (4096, 4096), (600, 150), (150, 100_000), (-5, 700), (10, 10_000)],
    ids=["none", "constant", "cut short", "falling", "far too many", "negative", "not in proportion"],
)
def test_implausible_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="are implausible"):
        fit_calibration(calibration_texts(0)[-2:], counts, "tokenize")


def test_too_few_counts_are_refused() -> None:
    with pytest.raises(BadInput, match="1 prompt token counts for 19 texts"):
        fit_calibration(calibration_texts(0), (140,), "tokenize")


def test_only_generated_prompts_need_calibration() -> None:
    made_up = {
        found.workload.name
        for found in builtin_workloads()
        if isinstance(found.workload, RandomText | SharedPrefix | Trace)
    }
    assert {found.workload.name for found in builtin_workloads() if needs_calibration(found.workload)} == made_up
    assert {"agents", "long-prefill", "random-1k-1k"} <= made_up


def test_texts_of_equal_length_have_the_same_words_and_other_passages_first() -> None:
    count = corpus().ends[39]
    texts = [make_filler(count, Random(seed), len(corpus().words)) for seed in range(10)]
    assert len({text[:40] for text in texts}) > 5
    assert len({tuple(sorted(text.split())) for text in texts}) == 1
    assert {len(text.split()) for text in texts} == {count}


def test_most_of_a_text_is_as_it_was_written() -> None:
    words = [word.strip() for word in corpus().words]
    written = set(pairwise(words))
    made = make_filler(5000, Random(1), len(words)).split()
    assert sum(pair in written for pair in pairwise(made)) > 0.9 * len(made)


@pytest.mark.parametrize("count", [700, 5000, 20_000])
def test_text_does_not_repeat_itself(count: int) -> None:
    """A server that guesses tokens by a prompt that repeats itself is right more often than in practice."""
    words = make_filler(count, Random(1), len(corpus().words)).split()
    fours = [*zip(words, words[1:], words[2:], words[3:], strict=False)]
    assert len(set(fours)) > 0.98 * len(fours)


def test_short_texts_differ() -> None:
    assert len({make_filler(12, Random(seed), len(corpus().words)) for seed in range(20)}) > 15


def test_passages_are_short_and_plain() -> None:
    words, _, ends = corpus()
    assert len(ends) == 300 and ends[-1] == len(words)
    assert all(60 < end - start < 200 for start, end in pairwise((0, *ends)))
    assert "".join(words).isascii()
    assert not re.search(r"https?://|====", "".join(words))


def test_corpus_is_read_when_it_is_needed() -> None:
    code = """
import swarmtui.session_process.preflight
from swarmtui.prompts.corpus import corpus
print(corpus.cache_info().currsize)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"0\n"
