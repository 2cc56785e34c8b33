"""Play a recorded session: which requests may be sent, when they are due, and their prompts."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from swarmtui.model.trace import ReplayedRequest, leading_blocks
from swarmtui.model.workload import Message, Tool
from swarmtui.prompts.filler_text import Calibration
from swarmtui.prompts.sampling import nonce
from swarmtui.prompts.traces.block_text import BlockText, PromptChain
from swarmtui.prompts.traces.recordings import Recording, Recordings


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
