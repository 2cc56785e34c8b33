"""Play recorded traces, by their sessions or by arrival times: which requests are sent, when, and their prompts.

Prompts are composed from block ids: the same leading ids give the same leading text, of the recorded number of tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from swarmtui.model.base import BadInput
from swarmtui.model.load import Load, Open, Sessions
from swarmtui.model.trace import ReplayedRequest, TraceSession, leading_blocks
from swarmtui.model.workload import Message, Tool
from swarmtui.prompts.corpus import varied
from swarmtui.prompts.filler_text import Calibration, words_for_tokens
from swarmtui.prompts.sampling import nonce
from swarmtui.prompts.traces.reader import read_sessions
from swarmtui.prompts.traces.recordings import Recording, Recordings

# Blocks begin this many tokens late, for the end of the chat template, which follows the text, and for the error of the
# word count at a boundary.
_TAIL = 12


class BlockText:
    """The text of blocks of one size, as the server counts tokens.

    A prompt is the corpus, with some words of each block exchanged in a way of its own: whatever the blocks
    are, a prompt has the number of tokens that calibration gives for as many words. Where a block begins depends on
    its position only, so that blocks have their recorded size on average in any vocabulary. It begins a few tokens
    late, so that prompts share at least the tokens of their equal blocks: servers cache whole blocks.
    """

    def __init__(self, block_size: int, calibration: Calibration) -> None:
        self.block_size, self._calibration = block_size, calibration
        self._starts = [0]

    def words_before(self, tokens: float) -> int:
        """Return the number of words in the first `tokens` tokens of a prompt, which begins with the chat template."""
        left = tokens - self._calibration.overhead
        return words_for_tokens(left, self._calibration) if left > 0 else 0

    def block_start(self, index: int) -> int:
        while len(self._starts) <= index:
            tail = min(_TAIL, self._calibration.overhead)
            self._starts.append(self.words_before(len(self._starts) * self.block_size + tail))
        return self._starts[index]

    def words_between(self, start: int, end: int, key: str) -> str:
        """Return these words with some of them exchanged by `key`.

        Texts of different keys differ from their first word on, so that they share no more than what is before them.
        """
        return varied(start, end, self._calibration.cycle, Random(key), any_first=True)


class PromptChain:
    """The prompts of one agent: each is the text of the one before up to the first block that differs, and new text."""

    def __init__(self, text: BlockText, key: str, start: str) -> None:
        """`key` selects the text of blocks, `start` is the text before them."""
        self._text, self._key, self._start = text, key, start
        self._prompt = start
        self._ends = array("q")

    def next_prompt(self, keep: int, new: Iterable[int], input_tokens: int, name: str) -> str:
        """Return the prompt with `keep` blocks of the last one and `new` ones; `name` selects the rest of the text.

        Only blocks that are whole in a prompt may be kept in the next. The last may have words beyond the prompt's end.
        """
        del self._ends[keep:]
        words, whole = max(1, self._text.words_before(input_tokens)), input_tokens // self._text.block_size
        parts = [self._prompt[: self._ends[-1]] if keep else self._start]
        length, position = len(parts[0]), self._text.block_start(keep)
        for index, block in enumerate(new, keep):
            end = self._text.block_start(index + 1)
            end = end if index < whole else min(words, end)
            if position < end:
                parts.append(self._text.words_between(position, end, f"{self._key}/{block}"))
                length += len(parts[-1])
                position = end
            self._ends.append(length)
        self._prompt = "".join(parts)
        if position >= words:
            return self._prompt.rsplit(None, position - words)[0]
        rest = self._text.words_between(position, words, f"{self._key}/{name}")
        return (self._prompt + rest).rstrip()


class SharedBlocks:
    """The blocks sent so far in a run, for traces whose block ids mean the same in all sessions."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.seen: set[int] = set()


class ComposedRequest(NamedTuple):
    """A request as it is sent: the prompt of one user message, or recorded messages with their tools."""

    prompt: str
    output_tokens: int
    replayed: ReplayedRequest
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()


class Play:
    """One play of a recording, from its first request or from a later one of the parent (`place`).

    `key` and `start` are those of its prompts; `seen` are the blocks that were sent before, which the play extends.
    """

    def __init__(
        self,
        number: int,
        recording: Recording,
        text: BlockText,
        *,
        key: str,
        start: str,
        seen: set[int],
        max_gap_s: float,
        time_scale: float,
        place: int = 0,
    ) -> None:
        self.number, self._recording, self._text = number, recording, text
        self._key, self._start, self._seen = key, start, seen
        self._max_gap_s, self._time_scale = max_gap_s, time_scale
        # The position of the first request.
        self.first = recording.parents[place]
        self._size = len(recording.requests) - self.first
        self._ends: dict[int, int] = {}
        self._chains: dict[int, PromptChain] = {}
        self._blocks: dict[int, list[int]] = {}

    @property
    def ended(self) -> bool:
        return len(self._ends) == self._size

    def finish(self, position: int, end_ns: int) -> list[tuple[int, int]]:
        """Note that a request has been answered; return when those that waited for it only are due, and which."""
        self._ends[position] = end_ns
        due = []
        for later, request in enumerate(self._recording.requests[position + 1 :], position + 1):
            if position in request.after and all(before in self._ends for before in request.after):
                gap_ns = int(min(request.gap_s, self._max_gap_s) / self._time_scale * 1e9)
                due.append((max(self._ends[before] for before in request.after) + gap_ns, later))
        return due

    def compose(self, position: int) -> ComposedRequest:
        """Return a request with its prompt; the requests of an agent must be composed in order."""
        request = self._recording.requests[position]
        agent, keep = request.subagent, request.keep
        before = self._blocks.get(agent)
        if before is None:
            self._chains[agent] = PromptChain(self._text, self._key, self._start)
            before, keep = self._blocks_before(position), 0
        blocks = self._blocks[agent] = [*before[: request.keep], *request.new]
        prompt, messages = "", request.messages
        if messages:
            salted = msgspec.structs.replace(messages[0], content=self._start + messages[0].content)
            messages = (salted, *messages[1:])
        else:
            name = f"{self.number}:{position}"
            prompt = self._chains[agent].next_prompt(keep, blocks[keep:], request.input_tokens, name)
        known = leading_blocks(blocks, self._seen)
        self._seen.update(blocks)
        return ComposedRequest(
            prompt,
            request.output_tokens,
            ReplayedRequest(
                play=self.number,
                session=self._recording.id,
                turn=request.turn,
                subagent=agent,
                requests=len(self._recording.requests),
                skipped=self.first,
                input_tokens=request.input_tokens,
                reusable_tokens=min(known * self._recording.block_size, request.input_tokens),
            ),
            messages,
            request.tools,
        )

    def _blocks_before(self, position: int) -> list[int]:
        """Return the blocks of the request before, of the same agent, which this play did not send."""
        agent = self._recording.requests[position].subagent
        blocks: list[int] = []
        for request in self._recording.requests[:position]:
            if request.subagent == agent:
                blocks = [*blocks[: request.keep], *request.new]
        return blocks


class Plays:
    """Starts the plays of a session of swarmtui; the same arguments give the same prompts."""

    def __init__(self, recordings: Recordings, seed: int, salt: str, calibration: Calibration) -> None:
        self.recordings = recordings
        self._seed, self._salt, self._calibration = seed, salt, calibration
        self._texts: dict[int, BlockText] = {}

    def start(
        self, number: int, session: int, share: float, shared: SharedBlocks, *, max_gap_s: float, time_scale: float
    ) -> Play:
        """Play the session at this place of the order, from the request after this share of them.

        Blocks with a meaning in all sessions are sent before in any play that has the same `shared` blocks. Other
        plays begin with text of their own, so that no cache knows them from before.
        """
        recording = self.recordings[session]
        group, seen = (shared.group, shared.seen) if recording.shared_blocks else (number, set[int]())
        return Play(
            number,
            recording,
            self.text(recording.block_size),
            key=f"{self._seed}/{self._salt}/{group}",
            start=nonce(group, self._seed, self._salt),
            seen=seen,
            max_gap_s=max_gap_s,
            time_scale=time_scale,
            place=int(share * len(recording.parents)),
        )

    def text(self, block_size: int) -> BlockText:
        if block_size not in self._texts:
            self._texts[block_size] = BlockText(block_size, self._calibration)
        return self._texts[block_size]


def recorded_load(paths: Sequence[Path]) -> Load:
    """Return how a trace is replayed: by its arrival times, or in sessions if it has none."""
    times: list[float] = []
    for session in read_sessions(paths):
        if session.arrival_s is None:
            return Sessions()
        times += [session.arrival_s + request.at_s for request in session.requests]
    if not times:
        raise BadInput("the trace contains no request", source=str(paths[0]))
    return Open(rate=_mean_rate(min(times), max(times), len(times)), arrival="recorded", requests=len(times))


def _mean_rate(first_s: float, last_s: float, count: int) -> float:
    return (count - 1) / (last_s - first_s) if last_s > first_s else float(count)


class _Arrival(NamedTuple):
    at_s: float
    session: int
    turn: int
    input_tokens: int
    output_tokens: int
    blocks: array[int]


class ArrivingRequests:
    """The requests of a trace in the order of their arrival; after the last one it starts again."""

    def __init__(self, sessions: Iterable[TraceSession], seed: int, salt: str, calibration: Calibration) -> None:
        self._seed, self._salt = seed, salt
        self._names: list[str] = []
        self._requests: list[_Arrival] = []
        block_size, shared = 1, False
        for number, session in enumerate(sessions):
            self._names.append(session.id)
            block_size, shared = session.block_size, session.shared_blocks
            start_s = session.arrival_s or 0.0
            self._requests += [
                _Arrival(start_s + r.at_s, number, turn, r.input_tokens, r.output_tokens, array("q", r.blocks))
                for turn, r in enumerate(session.requests)
            ]
        self._requests.sort(key=lambda request: request[:3])
        self._text = BlockText(block_size, calibration)
        self._reusable = list(self._find_reusable(block_size)) if shared else [0] * len(self._requests)

    def _find_reusable(self, block_size: int) -> Iterator[int]:
        seen: set[int] = set()
        for request in self._requests:
            yield min(leading_blocks(request.blocks, seen) * block_size, request.input_tokens)
            seen.update(request.blocks)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def rate(self) -> float:
        """The mean number of requests per second, from the first to the last."""
        return _mean_rate(self._requests[0].at_s, self._requests[-1].at_s, len(self._requests))

    def arrival_times(self, rate: float) -> Iterator[float]:
        """Yield the times of the requests, in seconds from the first, at this mean rate, without end."""
        scale, first, start = self.rate / rate, self._requests[0].at_s, 0.0
        while True:
            for request in self._requests:
                yield start + (request.at_s - first) * scale
            start += (self._requests[-1].at_s - first) * scale + 1.0 / rate

    def compose(self, position: int, group: int) -> ComposedRequest:
        """Return the request at this position of a run; runs differ by their `group`, and share no text."""
        passed, index = divmod(position, len(self._requests))
        request = self._requests[index]
        number = group + passed * len(self._requests)
        chain = PromptChain(self._text, f"{self._seed}/{self._salt}/{number}", nonce(number, self._seed, self._salt))
        return ComposedRequest(
            chain.next_prompt(0, request.blocks, request.input_tokens, str(position)),
            request.output_tokens,
            ReplayedRequest(
                play=number + request.session,
                session=self._names[request.session],
                turn=request.turn,
                input_tokens=request.input_tokens,
                reusable_tokens=self._reusable[index],
            ),
        )
