"""The tokenizer and vocabulary of the simulator: a simple rule for prompts and answers."""

from __future__ import annotations

import math
import random
import re
import sys
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from swarmtui.sim.presets import Output

# A token is up to eight letters with the space before them, up to three digits, or a sign.
_PIECES = re.compile(r" ?[^\W\d_]{1,8}|\d{1,3}| ?[^\w\s]|_|\s+")

_TEXT = """
the model reads a small file and then writes each line with care so that no value is lost when two tasks
run at once because every worker holds its own copy of state until all work ends . first we check input
, next we parse it into fields that later steps can use without asking again what they mean now given one
long queue of jobs this loop takes them in order gives back what was found keeps count to show how far it
got if any step fails there must be some clear sign for people who read logs at night , so errors name
their cause place and time of day still most code here only moves data from left right through plain
methods which makes tests short quick easy change one thing see the other parts stay as before good
design often means less not more : fewer kinds of object fewer ways for state between calls go wrong
"""

VOCABULARY = tuple((word if word in ".,:" else f" {word}").encode() for word in _TEXT.split())
_CHUNK = 4096


def pieces(text: str) -> list[str]:
    """Split text into tokens, in chunks: what a turn of an agent repeats of the turn before is known already."""
    found: list[str] = []
    start = 0
    while True:
        # No token continues across the first of one or more spaces.
        end = text.find(" ", start + _CHUNK)
        while end > 0 and text[end - 1].isspace():
            end = text.find(" ", end + 1)
        if end < 0:
            found += _PIECES.findall(text[start:])
            return found
        found += _chunk_pieces(text[start:end])
        start = end


@lru_cache(maxsize=8192)
def _chunk_pieces(chunk: str) -> tuple[str, ...]:
    return tuple(map(sys.intern, _PIECES.findall(chunk)))


def chat_pieces(messages: Iterable[tuple[str, str]], *, open_answer: bool = True) -> list[str]:
    """Join messages to one prompt, with the markers of a chat template; `open_answer` adds that of the answer."""
    prompt: list[str] = []
    for role, content in messages:
        prompt += ("<|start|>", role, "\n", *pieces(content), "<|end|>", "\n")
    if open_answer:
        prompt += ("<|start|>", "assistant", "\n")
    return prompt


def token_ids(prompt: Sequence[str]) -> list[int]:
    return [zlib.crc32(piece.encode()) % 150_000 for piece in prompt]


class AnswerText:
    """The answer to a prompt; the same prompt and seed give the same words and length."""

    __slots__ = ("_start", "_stride", "_vocabulary", "natural_length")

    def __init__(self, prompt: Sequence[str], output: Output, seed: int) -> None:
        rng = random.Random(zlib.crc32("".join(prompt).encode()) ^ seed)
        sigma = math.sqrt(math.log1p(output.cv**2))
        self.natural_length = max(1, round(output.median * math.exp(sigma * rng.gauss(0.0, 1.0))))
        self._start = rng.randrange(len(VOCABULARY))
        self._stride = rng.choice((1, 1, 1, 2, 5, 7))
        self._vocabulary = VOCABULARY
        if output.echo:
            self._vocabulary, self._start, self._stride = _echo_pieces(prompt), 0, 1

    def text(self, start: int, count: int) -> bytes:
        """Return the tokens from `start` on: ASCII without characters that JSON escapes."""
        vocabulary, stride = self._vocabulary, self._stride
        size = len(vocabulary)
        first = self._start + start * stride
        if count == 1:
            return vocabulary[first % size]
        return b"".join(vocabulary[i % size] for i in range(first, first + count * stride, stride))


def _echo_pieces(prompt: Sequence[str]) -> tuple[bytes, ...]:
    """Return the pieces of the last user message, without markers and characters that JSON escapes."""
    start = max(
        (at + 2 for at, piece in enumerate(prompt) if piece == "<|start|>" and prompt[at + 1] == "user"), default=0
    )
    words = (" " if piece.isspace() else piece for piece in prompt[start:] if not piece.startswith("<|"))
    usable = [word.encode() for word in words if word.isascii() and word.isprintable() and not set(word) & set('"\\')]
    return tuple(usable) or VOCABULARY
