"""The text that prompts of a given length are made of: 300 passages of prose and code, about 39,000 words.

`corpus.txt` was written for this purpose. It is read when the first prompt is made, not when this module is imported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

# Two words of this many change places, and at least two pairs of a text.
_WORDS_PER_EXCHANGE = 64
# A text with fewer words that can do so has too few variants; all its words can.
_MIN_MOVABLE = 8


class Corpus(NamedTuple):
    """The words in order, each with the blanks after it, and the numbers of words up to the ends of passages.

    `movable` are words of four letters or more within a line. A text has the same number of tokens if two of them
    change places: tokenizers split at blanks.
    """

    words: tuple[str, ...]
    movable: tuple[bool, ...]
    ends: tuple[int, ...]


@cache
def corpus() -> Corpus:
    text = Path(__file__).with_name("corpus.txt").read_text(encoding="utf-8")
    passages = [re.findall(r"\S+\s*", f"{passage}\n\n") for passage in text.rstrip().split("\n====\n")]
    words = tuple(word for passage in passages for word in passage)
    movable = tuple(
        len(word) > 4 and word[:-1].isalpha() and word[-1] == before[-1] == " " and not before[-2].isspace()
        for before, word in pairwise(("\n\n", *words))
    )
    return Corpus(words, movable, tuple(accumulate(map(len, passages))))


def varied(start: int, end: int, cycle: int, rng: Random, *, any_first: bool = False) -> str:
    """Return words of the corpus, of which the first `cycle` are repeated, with a few of them in each other's places.

    `any_first`: any of them comes first.
    """
    words, movable, _ = corpus()
    numbers = [number % cycle for number in range(start, end)]
    texts = [words[number] for number in numbers]
    places: Sequence[int] = [at for at, number in enumerate(numbers) if movable[number]]
    if len(places) < _MIN_MOVABLE:
        places = range(len(texts))
    exchanged = [(_draw(places, rng), _draw(places, rng)) for _ in range(max(2, len(texts) // _WORDS_PER_EXCHANGE))]
    if any_first:
        exchanged.append((0, _draw(range(len(texts)), rng)))
    for one, other in exchanged:
        first, second = texts[one].rstrip(), texts[other].rstrip()
        # Blanks stay where they are.
        texts[one], texts[other] = second + texts[one][len(first) :], first + texts[other][len(second) :]
    return "".join(texts)


def _draw(items: Sequence[int], rng: Random) -> int:
    return items[int(rng.random() * len(items))]
