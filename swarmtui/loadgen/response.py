"""Collect one streamed response: arrival times, text and token counts."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from itertools import chain
from operator import eq, sub

from swarmtui.model.record import SAME_STAMP_NS, EngineTimings, TokenSource

# A response above these limits ends with the error `too_long`, so that it cannot exhaust memory.
MAX_CHARS = 32 << 20
MAX_CHUNKS = 1 << 18
# A response that repeats one token, or stops after this few, has a high rate that means nothing.
_REPEATS = 16
_FEW_TOKENS = 2
# The finish reason of servers that do not say whether they completed an answer or cut it at its limit.
COMPLETED = "completed"
# An answer is a loop if its last characters, this many, repeat a text of at most the second number of characters.
_LOOP_CHARS, _PERIOD_CHARS = 240, 60
# Replacement and control characters, surrogates and private use; more than this share, and number, is garbage.
_NOT_TEXT = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ue000-\uf8ff]")
_GARBAGE_SHARE, _GARBAGE_CHARS = 0.05, 4
_SAMPLE_CHARS = 4000


class Response:
    """Accumulates what a stream delivers. `add_output` is on the hot path: it appends, and does little else."""

    __slots__ = (
        "cache_write_tokens", "cached_tokens", "chars", "coalesced_chunks", "content", "empty_chunks",
        "engine", "engine_decode_tps", "engine_prefill_s", "engine_tokens", "error", "error_detail", "finish_reason",
        "finished", "first_chars", "id", "leading_empty", "reasoning", "reasoning_tokens", "t_finish",
        "t_first_content", "t_first_event", "t_first_reasoning", "times", "tokens_in", "usage_after", "usage_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.id = ""
        self.times = array("q")
        self.usage_after: list[int] = []
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.chars = 0
        self.first_chars = 0
        self.coalesced_chunks = 0
        self.empty_chunks = 0
        self.leading_empty = 0
        self.t_finish: int | None = None
        self.t_first_event: int | None = None
        self.t_first_reasoning: int | None = None
        self.t_first_content: int | None = None
        self.usage_tokens: int | None = None
        self.engine_tokens: int | None = None
        self.tokens_in: int | None = None
        self.cached_tokens: int | None = None
        self.cache_write_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.engine_decode_tps: float | None = None
        self.engine_prefill_s: float | None = None
        self.engine: EngineTimings | None = None
        self.finish_reason: str | None = None
        self.finished = False
        self.error: str | None = None
        self.error_detail = ""

    def add_output(self, t: int, content: str | None, reasoning: str | None, other: str) -> None:
        """Add a chunk with output: content, reasoning or tool call text, at least one of them not empty."""
        times = self.times
        if content:
            size = len(content)
            self.content.append(content)
            if self.t_first_content is None:
                self.t_first_content = t
        else:
            size = 0
        if reasoning:
            size += len(reasoning)
            self.reasoning.append(reasoning)
            if self.t_first_reasoning is None:
                self.t_first_reasoning = t
        if other:
            size += len(other)
            self.content.append(other)
        if not times:
            self.first_chars = size
        elif times[-1] == t:
            self.coalesced_chunks += 1
        times.append(t)
        self.chars += size

    def add_contents(self, times: list[int], contents: list[str]) -> None:
        """Add chunks that have content only, after a first one. Their text is kept as one string."""
        before = self.times[-1]
        self.coalesced_chunks += sum(map(eq, times, [before, *times]))
        self.times.extend(times)
        if self.t_first_content is None:
            self.t_first_content = times[0]
        text = "".join(contents)
        self.content.append(text)
        self.chars += len(text)

    def add_empty(self) -> None:
        """Add a chunk without output that stands for a token: part of a character, or the end of the sequence."""
        self.empty_chunks += 1
        if not self.times:
            self.leading_empty += 1

    def end(self, reason: str | None, t: int) -> None:
        """Set the finish reason; an answer that was not cut at its limit ends with a token that has no text."""
        self.finish_reason = reason
        if reason != "length":
            self.add_empty()
            self.t_finish = t

    def count_hidden_first(self, total: int | None) -> None:
        """Count a first token whose text was held back: llama.cpp then sends only the role, when it has that token."""
        if total is None or not self.times or self.leading_empty or self.t_first_event == self.times[0]:
            return
        if total > len(self.times) + self.empty_chunks:
            self.empty_chunks += 1
            self.leading_empty = 1

    def fail(self, error: str, detail: str = "") -> None:
        if self.error is None:
            self.error, self.error_detail = error, detail

    def tail(self, size: int) -> str:
        """Return the last `size` characters of the reasoning and the content after it."""
        taken: list[str] = []
        for piece in chain(reversed(self.content), reversed(self.reasoning)):
            taken.append(piece[-size:])
            size -= len(piece)
            if size <= 0:
                break
        return "".join(reversed(taken))

    def token_count(self) -> tuple[int | None, TokenSource | None]:
        """Return the output tokens and their source: usage per chunk, final usage, the engine's count, or chunks."""
        if self.usage_tokens is not None:
            return self.usage_tokens, "usage_chunks" if self._usage_per_chunk() else "usage"
        if self.engine_tokens is not None:
            return self.engine_tokens, "engine"
        return (len(self.times), "chunks") if self.times else (None, None)

    def final_reason(self, total: int | None, max_tokens: int | None) -> str | None:
        """Return the finish reason; an answer that is only known to be complete was cut if it reached its limit."""
        if self.finish_reason != COMPLETED:
            return self.finish_reason
        return "length" if total is not None and max_tokens is not None and total >= max_tokens else "stop"

    def _usage_per_chunk(self) -> bool:
        return len(self.times) > 1 and len(self.usage_after) == len(self.times)

    def chunk_tokens(self) -> tuple[int, ...] | None:
        """Return the tokens per chunk if each came with usage; tokens reported after the last chunk count with it."""
        if not self._usage_per_chunk():
            return None
        after = [*self.usage_after[:-1], max(self.usage_tokens or 0, self.usage_after[-1])]
        return tuple(max(0, count - before) for count, before in zip(after, [0, *after], strict=False))

    def first_tokens(self, total: int) -> int:
        """Return the tokens up to the first chunk with output.

        They are reported, or one for each chunk plus the share, by text, of tokens that exceed the number of chunks.
        """
        per_chunk = self.chunk_tokens()
        if per_chunk is not None:
            return per_chunk[0]
        first = min(total, 1 + self.leading_empty)
        extra = total - len(self.times) - self.empty_chunks
        return first + round(extra * self.first_chars / self.chars) if extra > 0 else first

    def first_coalesced(self) -> int:
        return bisect_right(self.times, self.times[0] + SAME_STAMP_NS) - 1 if self.times else 0

    def chunk_us(self) -> tuple[int, ...]:
        """Return the gaps between chunks as differences of rounded offsets: rounding errors do not accumulate."""
        if not self.times:
            return ()
        start = self.times[0] - 500
        offsets = [(t - start) // 1000 for t in self.times]
        return tuple(map(sub, offsets, [0, *offsets]))

    def degenerate(self, total: int | None, exact: bool) -> bool:
        """Whether the output is empty, a loop, garbage, far fewer tokens than chunks, or over after a few tokens."""
        pieces = self.content or self.reasoning
        if not self.times:
            return True
        if _is_garbage(text := "".join(pieces)) or (not exact and _is_loop(text)):
            return True
        repeats = len(text) // len(pieces[0])
        if repeats >= _REPEATS and text == pieces[0] * repeats:
            return True
        if total is not None and 2 * total < len(self.times):
            return True
        return not exact and self.finish_reason in ("stop", COMPLETED) and total is not None and total <= _FEW_TOKENS


def _is_loop(text: str) -> bool:
    tail = text.rstrip()[-_LOOP_CHARS:]
    return len(tail) == _LOOP_CHARS and any(tail[p:] == tail[:-p] for p in range(1, _PERIOD_CHARS + 1))


def _is_garbage(text: str) -> bool:
    sample = text[:_SAMPLE_CHARS]
    return len(_NOT_TEXT.findall(sample)) > max(_GARBAGE_CHARS, _GARBAGE_SHARE * len(sample))
