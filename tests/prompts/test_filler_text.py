from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.model.base import BadInput
from swarmtui.model.workload import Message, RandomText, SharedPrefix, Trace
from swarmtui.prompts.corpus import WORDS
from swarmtui.prompts.filler_text import (
    Calibration,
    calibration_texts,
    fit_calibration,
    make_filler,
    needs_calibration,
    words_for_prompt,
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


def calibrated(tokenizer: Tokenizer, template: int, system: str = "") -> Calibration:
    before = (Message(role="system", content=system),) if system else ()
    probes = calibration_texts(5)
    counts = [prompt_tokens((*before, Message(role="user", content=t)), tokenizer, template) for t in probes]
    return fit_calibration(probes, counts, "usage")


def random_text(tokens: int, system: str) -> WorkloadFile:
    text = f'kind = "random"\nname = "r"\ninput_tokens = {tokens}\noutput_tokens = 8\nsystem = "{system}"'
    return WorkloadFile(workload=parse_workload(text, "made"), source="made", base=Path(), text=text)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@settings(max_examples=40)
@given(tokens=st.integers(200, 9000), seed=st.integers(0, 99), system=st.sampled_from(["", "You are a terse helper."]))
def test_prompt_lengths_are_within_two_percent(tokenizer: Tokenizer, tokens: int, seed: int, system: str) -> None:
    source = TaskGenerator(random_text(tokens, system), seed=seed, calibration=calibrated(tokenizer, 11, system))
    for index in range(3):
        counted = prompt_tokens(source.task(index, 1, index).messages, tokenizer, 11)
        # In a vocabulary of single letters, code has longer words than prose.
        rel, least = (0.03, 20) if tokenizer is by_bytes else (0.02, 0)
        assert counted == pytest.approx(tokens, rel=rel, abs=least)


@pytest.mark.parametrize("tokens", range(100, 260, 7))
def test_short_prompts_are_within_two_percent_or_a_word_in_a_small_vocabulary(tokens: int) -> None:
    """There the first words of the corpus have fewer tokens than its mean, and a word of code has several."""
    source = TaskGenerator(random_text(tokens, ""), seed=1, calibration=calibrated(small_vocabulary, 20))
    counted = prompt_tokens(source.task(0, 1, 0).messages, small_vocabulary, 20)
    assert counted == pytest.approx(tokens, rel=0.02, abs=4)


def test_calibration_finds_overhead_and_tokens_per_word() -> None:
    found = calibrated(one_each, 11)
    assert found.overhead == pytest.approx(12.0)  # the template and the nonce
    assert found.tokens_per_word == pytest.approx(1.0)
    assert found.by == "usage"


def test_calibration_texts_differ_by_session() -> None:
    texts = calibration_texts(1, "a")
    assert len(texts) == 23
    assert texts[0][:11] != texts[1][:11]
    assert texts[0] != calibration_texts(1, "b")[0]
    assert texts == calibration_texts(1, "a")


def test_prompt_shorter_than_the_template_has_one_word() -> None:
    assert words_for_prompt(5, Calibration(overhead=11.0, tokens_per_word=1.3, by="usage")) == 1


@pytest.mark.parametrize(
    "counts",
    [(0, 0), (1, 1), (4096, 4096), (600, 150), (150, 100_000), (-5, 700), (10, 10_000)],
    ids=["none", "constant", "cut short", "falling", "far too many", "negative", "not in proportion"],
)
def test_implausible_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="are implausible"):
        fit_calibration(calibration_texts(0)[-2:], counts, "tokenize")


def test_too_few_counts_are_refused() -> None:
    with pytest.raises(BadInput, match="1 prompt token counts for 23 texts"):
        fit_calibration(calibration_texts(0), (140,), "tokenize")


def test_only_generated_prompts_need_calibration() -> None:
    made_up = {
        found.workload.name
        for found in builtin_workloads()
        if isinstance(found.workload, RandomText | SharedPrefix | Trace)
    }
    assert {found.workload.name for found in builtin_workloads() if needs_calibration(found.workload)} == made_up
    assert {"agents", "long-prefill", "random-1k-1k"} <= made_up


def test_text_is_prose_and_code_in_which_words_of_a_kind_stand_in_each_others_place() -> None:
    one, other = (make_filler(2 * len(WORDS), Random(seed)) for seed in (1, 2))
    assert one != other and sorted(one.split()) == sorted(other.split())
    for text in (one, other):
        assert text.count("SELECT ") == 2 and text.count("def ") == 4 and text.count("func ") == 2
        for code in (part for part in text.split("\n\n") if part.startswith("def ")):
            ast.parse(code)
        # A determiner is never followed by a verb or the end of a sentence.
        assert not re.search(r"\b(the|a) (keeps|writes|reads|waits|the|a|of|\.)\b", text)


def test_short_texts_have_their_words_in_any_order() -> None:
    assert len({make_filler(6, Random(seed)) for seed in range(20)}) > 15
