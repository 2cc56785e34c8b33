"""One answer as it streams in: stamps, text and token counts, folded into the record of its request."""

from __future__ import annotations

from swarmtui.model.record import TokenSource

# An answer longer than this is no answer, and would fill the memory.
MAX_CHARS = 32 << 20
MAX_CHUNKS = 1 << 18

# One token again and again, or an end after so few, makes fast numbers that mean nothing.
_REPEATS = 16
_FEW_TOKENS = 2


class Answer:
    """Collects what a stream says. The hot path is `output`: it appends, and compares nothing but the first time."""

    __slots__ = (
        "cached_tokens", "chars", "content", "engine_decode_tps", "engine_prefill_s", "engine_tokens", "error",
        "error_detail", "finish_reason", "finished", "first_chars", "id", "reasoning", "reasoning_tokens",
        "shared_reads", "t_first_content", "t_first_event", "t_first_reasoning", "times", "tokens_in", "usage_after",
        "usage_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.id = ""
        self.times: list[int] = []
        self.usage_after: list[int] = []
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.chars = 0
        self.first_chars = 0
        self.shared_reads = 0
        self.t_first_event: int | None = None
        self.t_first_reasoning: int | None = None
        self.t_first_content: int | None = None
        self.usage_tokens: int | None = None
        self.engine_tokens: int | None = None
        self.tokens_in: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.engine_decode_tps: float | None = None
        self.engine_prefill_s: float | None = None
        self.finish_reason: str | None = None
        self.finished = False
        self.error: str | None = None
        self.error_detail = ""

    def output(self, t: int, content: str | None, reasoning: str | None, other: str) -> None:
        """A chunk that carries output: content, reasoning, or the text of a tool call; never all empty."""
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
            self.shared_reads += 1
        times.append(t)
        self.chars += size

    def fail(self, error: str, detail: str = "") -> None:
        if self.error is None:
            self.error, self.error_detail = error, detail

    def tokens(self) -> tuple[int | None, TokenSource | None]:
        """By precedence: usage with each chunk, final usage, the engine's own count, chunks."""
        if self.usage_tokens is not None:
            return self.usage_tokens, "usage_chunks" if self._counted_each() else "usage"
        if self.engine_tokens is not None:
            return self.engine_tokens, "engine"
        return (len(self.times), "chunks") if self.times else (None, None)

    def _counted_each(self) -> bool:
        return len(self.times) > 1 and len(self.usage_after) == len(self.times)

    def chunk_tokens(self) -> tuple[int, ...] | None:
        """Tokens of each chunk, where usage came with each; what came after the last (end of text) counts with it."""
        if not self._counted_each():
            return None
        after = [*self.usage_after[:-1], max(self.usage_tokens or 0, self.usage_after[-1])]
        return tuple(max(0, count - before) for count, before in zip(after, [0, *after], strict=False))

    def first_tokens(self, total: int) -> int:
        """The first chunk's part of `total`: as the server said, else one, and its share of the text of all others."""
        each = self.chunk_tokens()
        if each is not None:
            return each[0]
        beyond = total - len(self.times)
        return 1 + round(beyond * self.first_chars / self.chars) if beyond > 0 else 1

    def chunk_us(self) -> tuple[int, ...]:
        """Rounded offsets, then differences: rounding does not add up."""
        if not self.times:
            return ()
        first, before, gaps = self.times[0], 0, []
        for t in self.times:
            offset = (t - first + 500) // 1000
            gaps.append(offset - before)
            before = offset
        return tuple(gaps)

    def degenerate(self, total: int | None, exact: bool) -> bool:
        pieces = self.content or self.reasoning
        if not self.times:
            return True
        if len(pieces) >= _REPEATS and pieces[0] == pieces[1] and len(set(pieces)) == 1:
            return True
        if total is not None and 2 * total < len(self.times):
            return True
        return not exact and self.finish_reason == "stop" and total is not None and total <= _FEW_TOKENS
