"""The limits of measurement quality, and the grade that a rule gives: ok, a remark, or a doubt."""

from __future__ import annotations

from typing import Literal, NamedTuple

from swarmtui.model.telemetry import Program

# A note is worth knowing and does not affect a figure: only doubtful lines affect the verdict on a session.
QualityState = Literal["ok", "note", "doubtful"]
STATES: tuple[QualityState, ...] = ("ok", "note", "doubtful")


class Limit(NamedTuple):
    """A value up to `ok` is ok, up to `note` a note, and above both doubtful."""

    ok: float
    note: float = 0.0

    def grade(self, value: float) -> QualityState:
        return "ok" if value <= self.ok else "note" if value <= self.note else "doubtful"


class Enough(NamedTuple):
    """The least that a live doubt is based on: a share of a second or of a few answers proves nothing.

    `seconds` are those since the first measured request was sent, `answers` those of levels.
    """

    seconds: float = 0.0
    answers: int = 0

    def reached(self, so_far: Enough) -> bool:
        return so_far.seconds >= self.seconds and so_far.answers >= self.answers


# Shares of the time, and shares of the answers. An ended session is judged by what it has.
ENOUGH_TIME = Enough(seconds=5.0)
ENOUGH_ANSWERS = Enough(answers=64)

CLIENT_LAG = Limit(0.10)  # p99, as a share of the time per token
TURNAROUND = Limit(0.01)  # between the end of a stream and its next request, as a share of the time of requests
SEND_DELAY = Limit(0.02)  # of scheduled requests, as a share of their TTFT
CLIENT_CPU = Limit(0.70, 0.95)  # of a core
IN_FLIGHT = Limit(0.05)  # how far the held concurrency is below C, as a share of C
OTHER_CLIENTS = Limit(0.05)  # their requests in flight, as a share of ours
OTHER_REQUESTS = Limit(0.0, 0.02)  # as a share of our requests
TOKEN_COUNTS = Limit(0.01)  # difference between client and server
MISCOUNTED = Limit(0.0, 0.02)  # answers with fewer tokens than chunks, of all
USAGE_APART = Limit(0.0, 0.10)  # of the tokens of a text, which is not always split as it was generated
# Answers whose first token shares its timestamp with the next, of all; and by how much that moves a mean, at most.
FIRST_COALESCED = Limit(0.05)
FIRST_ERROR = Limit(0.0, 0.01)
DECODE_RATE = Limit(0.03)  # difference between client and engine
CACHED = Limit(0.02)  # of the prompt tokens, or of answers with more in the cache than the shared part
PREEMPTIONS = Limit(0.0)
THROTTLED = Limit(0.05)  # of a level's time
GPU_CLOCKS = Limit(0.05)  # (highest − lowest) / highest during a level
CLOCK_STEPS = Limit(0.0)
HOST_CLOCKS = Limit(0.001, 0.005)  # seconds; latencies do not depend on it, only how requests of hosts overlap
# Of all chunks. They blur gaps and stalls only; on a busy machine it is often the server that writes several at once.
# Above a quarter, something between server and client holds chunks back, or the client is too slow.
COALESCED_CHUNKS = Limit(0.01, 0.25)
# The time in which some task waited for a CPU, as a share. Tasks often wake at the same moment, so that some waiting is
# ordinary; and what matters is whether workers and servers had to wait: their steps take longer by that share.
CPU_PRESSURE = Limit(0.15, 0.30)
CPU_WAIT = Limit(0.02, 0.05)
# The CPU time of programs other than swarmtui and the server, as a share of that of the host. Without them, client and
# server wait for each other: that is how they share a host, and no disturbance.
OTHER_PROGRAMS = Limit(0.05)
STEAL = Limit(0.01, 0.03)  # of the CPU time


class Grade(NamedTuple):
    """The result of one rule; `good_sentence` explains the state ok, `bad_sentence` any other.

    `doubtful_above` is the value from which a note would be a doubt. `programs` are those that made the host busy.
    """

    state: QualityState
    value: str
    good_sentence: str
    bad_sentence: str
    doubtful_above: str = ""
    programs: tuple[Program, ...] = ()

    def as_remark(self, why: str) -> Grade:
        """Return it as a remark, however large its value is, with the reason."""
        return self._replace(state="note", bad_sentence=f"{self.bad_sentence}; {why}", doubtful_above="")

    @property
    def sentence(self) -> str:
        """A remark says its limit: without it, it would read like a doubt."""
        limit = f"; a remark only (a doubt: more than {self.doubtful_above})" if self.doubtful_above else ""
        return {"ok": self.good_sentence, "note": self.bad_sentence + limit}.get(self.state, self.bad_sentence)
