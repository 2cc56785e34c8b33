"""The text that prompts of a given length are made of: paragraphs of technical prose, and of Python, Go and SQL.

Words that are marked with the same sign, and have the same punctuation, can stand in each other's place: a text stays
grammatical when they are exchanged, and has the same tokens. `x~` is not part of the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from math import factorial, prod
from random import Random
from typing import NamedTuple

from swarmtui.prompts.sampling import shuffled

_TEXT = """
The n~server v~keeps a j~small n~copy of every n~block in memory and v~writes it to the n~disk when the n~queue is
k~empty. If a n~worker v~reads a j~former n~record before the n~header has been built, the n~request v~waits for the
n~lock and v~takes twice as long as the j~first one.

A j~clear n~warning v~names the n~file and the l~line, so that a n~user v~finds the j~likely n~cause in the e~log. We
measured how long each n~step takes, and found that the j~slow n~path v~spends most of its time in the e~parser.

def f~load(path, a~limit):
    i~rows = o~source.read(path)
    i~kept = [line for line in i~rows if h~len(line) > b~limit]
    return g~join(kept)

When the n~client v~sends its next m~message, the n~session v~checks the n~token and v~opens a j~new n~channel to the
e~host. Most of the n~code in this n~module only v~moves j~plain n~data from one n~table to another.

func f~dial(name string) (*Client, error) {
    i~conn, err := net.Dial("tcp", name)
    if err != nil { return nil, err }
    return f~wrap(conn, name), nil
}

It is better to return a j~short n~reply early than to hold a j~large n~buffer until every n~page is k~full. Do not
trust the n~clock of another m~machine, but compare the n~counter at the n~start with that at the e~end.

SELECT s~name, count(*) AS i~total
FROM i~jobs
WHERE i~state = 'done' AND i~cost > 10
GROUP BY s~name, s~day
ORDER BY i~total DESC;

The j~old n~design had a j~single n~thread for each c~task: the n~result was j~simple to read, but a n~crash of one
n~process v~stopped the whole e~batch. Now a n~manager v~starts them again, and v~counts how often that happens.

def f~save(data, a~name):
    i~queue = o~store.take(data)
    i~found = [part for part in i~queue if h~hash(part) > b~name]
    return g~sort(found)
"""


class Word(NamedTuple):
    """A word with the blanks after it, and what others must have in common with it to take its place."""

    text: str
    kind: tuple[str, ...] | None


def _words() -> tuple[tuple[Word, ...], ...]:
    paragraphs = []
    for paragraph in _TEXT.strip().split("\n\n"):
        is_code = "\n    " in paragraph or "SELECT" in paragraph
        text = paragraph if is_code else " ".join(paragraph.split())
        paragraphs.append(tuple(_word(*found) for found in re.findall(r"(?:([a-z])~)?(\S+)(\s*)", f"{text}\n\n")))
    return tuple(paragraphs)


def _word(sign: str, text: str, blanks: str) -> Word:
    return Word(text + blanks, (sign, re.sub(r"\w+", "", text), blanks) if sign else None)


PARAGRAPHS = _words()
WORDS = tuple(word for paragraph in PARAGRAPHS for word in paragraph)
# A text with fewer variants has its words in any order.
_MIN_VARIANTS = 6


class Passage(NamedTuple):
    """Words in order, and the places of those that can be exchanged with each other."""

    texts: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]

    def exchanged(self, rng: Random, *, any_first: bool = False) -> str:
        """Return the text with words in each other's places; `any_first`: one of all of them comes first."""
        texts = list(self.texts)
        for places in self.places:
            for at, other in zip(places, shuffled(places, rng), strict=True):
                texts[at] = self.texts[other]
        if any_first:
            other = int(rng.random() * len(texts))
            texts[0], texts[other] = texts[other], texts[0]
        return "".join(texts)


def passage(words: Sequence[Word]) -> Passage:
    """Return the words as a passage; if it is too short to have many variants, with all of them in any order."""
    found: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at, word in enumerate(words):
        if word.kind is not None:
            found[word.kind].append(at)
    places = tuple(tuple(same) for same in found.values() if len(same) > 1)
    if prod(factorial(min(len(same), 9)) for same in places) < _MIN_VARIANTS:
        places = (tuple(range(len(words))),)
    return Passage(tuple(word.text for word in words), places)
