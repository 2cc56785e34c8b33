"""The plan of a session: levels and their keys, runs, requests, timeouts; and parsers for their written form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from swarmtui.model.base import BadInput, Stored

MAX_STREAMS = 20_000

# A stage under manual control becomes a level when it has this many completions per stream.
MIN_STEERED_COMPLETIONS = 4

_MIN_CANARIES, _MAX_CANARIES = 1, 20


class Timeouts(Stored, frozen=True, kw_only=True):
    """Time limits in seconds: `first_token` and `idle` limit silence, `total` the whole request."""

    connect: float = 10.0
    first_token: float = 120.0
    idle: float = 30.0
    total: float = 600.0


def parse_timeouts(total: str, idle: str) -> Timeouts:
    """Parse timeouts; a total other than the default is also the limit for the first token."""
    default = Timeouts()
    total_s = parse_seconds(total, "timeout")
    return Timeouts(
        connect=min(default.connect, total_s),
        first_token=min(default.first_token, total_s) if total_s == default.total else total_s,
        idle=parse_seconds(idle, "idle-timeout"),
        total=total_s,
    )


class Requests(Stored, frozen=True, kw_only=True):
    """The number of requests of a run: a fixed number, or a multiple of C (`4C`)."""

    count: int = 4
    per_stream: bool = True

    def at(self, c: int) -> int:
        return self.count * c if self.per_stream else self.count

    def __str__(self) -> str:
        return f"{self.count}C" if self.per_stream else str(self.count)


PlanMode = Literal["sweep", "manual", "cliff", "capacity"]
LoadModeName = Literal["closed", "barrier", "swarm", "open", "ramp", "mixed", "dag", "sessions"]
Arrival = Literal["poisson", "constant", "gamma", "recorded"]
Rules = Literal["agentx"]

# The modes that keep C requests in flight until the end of a level; their main throughput is the steady one.
CLOSED_LOOPS: tuple[LoadModeName, ...] = ("closed", "ramp")


AgentHeader = Literal["billing", "date", "both"]


class Plan(Stored, frozen=True, kw_only=True):
    """A sweep over `levels`, manual control that starts at the first level, or a search up to `max_c`.

    A search is one for the cliff, or for the capacity: the most agents that keep the SLO.

    With `duration_s` a run lasts that long, otherwise it has `requests`. `warmup` is a number of discarded requests.
    `slo` is written as on the command line. `load` is the load mode, which decides which of the fields after it
    apply; model/load.py documents them. `preroll`: unmeasured requests keep C in flight before and after the measured
    ones of a closed loop. `canaries` is the share of questions with checkable answers among its requests. `rules`: the
    benchmark whose rules of play a replayed trace follows. `price_per_hour` is that of the server, for
    the cost of tokens. `agent_header`: lines in front of the system prompt that change with every request.
    """

    mode: PlanMode = "sweep"
    levels: tuple[int, ...] = (1, 2, 4, 8)
    runs: int = 1
    requests: Requests = Requests()
    duration_s: float | None = None
    warmup: int = 2
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int = 0
    timeouts: Timeouts = Timeouts()
    workers: int | None = None
    slo: str = ""
    load: LoadModeName = "closed"
    rotate: bool = False
    serial: Literal["none", "measured", "extrapolated"] = "none"
    sample: int = 0
    serial_prompt_tps: float | None = None
    serial_decode_tps: float | None = None
    rates: tuple[float, ...] = ()
    arrival: Arrival = "poisson"
    burst: float = 1.0
    every_s: float | None = None
    loop: bool = False
    preroll: bool = True
    canaries: float = 0.0
    agent_header: AgentHeader | None = None
    sessions: Requests | Literal["all"] | None = None
    max_gap_s: float = 10.0
    time_scale: float = 1.0
    rules: Rules | None = None
    max_c: int = 1024
    price_per_hour: float | None = None

    @property
    def run_length(self) -> str:
        """How long a run lasts, as text: 30 s, 4C requests, 2C sessions."""
        if self.duration_s is not None:
            return f"{self.duration_s:g} s"
        if self.load == "sessions" and self.sessions is not None:
            return f"{self.sessions} sessions"
        return "1 request" if str(self.requests) == "1" else f"{self.requests} requests"


def parse_levels(text: str) -> tuple[int, ...]:
    levels = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d+\s*", part):
            raise BadInput(f"{part.strip()!r} is not a whole number; expected a list like 1,2,4,8", key="levels")
        level = int(part)
        if not 1 <= level <= MAX_STREAMS:
            raise BadInput(f"level {level} is not between 1 and {MAX_STREAMS}", key="levels")
        if level in levels:
            raise BadInput(f"duplicate level {level}; use --runs to repeat levels", key="levels")
        levels.append(level)
    return tuple(levels)


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse requests per second, each rate a level: `4`, or `2,4,8`."""
    rates: list[float] = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", part) or not float(part):
            raise BadInput(f"{part.strip()!r} is not a positive rate; expected 4, or several like 2,4,8", key="rate")
        if float(part) in rates:
            raise BadInput(f"duplicate rate {float(part):g}; use runs to repeat it", key="rate")
        rates.append(float(part))
    return tuple(rates)


def parse_requests(text: str) -> Requests:
    match = re.fullmatch(r"\s*(\d+)\s*([cC]?)\s*", text)
    if not match or int(match.group(1)) < 1:
        raise BadInput(f"{text!r} is neither a number nor a multiple of C like 4C", key="requests")
    return Requests(count=int(match.group(1)), per_stream=bool(match.group(2)))


def parse_canaries(text: str) -> float:
    """Parse a share such as `2%`; `none` is zero."""
    if text == "none":
        return 0.0
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match or not _MIN_CANARIES <= float(match.group(1)) <= _MAX_CANARIES:
        problem = f"{text!r} is not a share from {_MIN_CANARIES}% to {_MAX_CANARIES}%, such as 2%"
        raise BadInput(problem, key="canaries")
    return float(match.group(1)) / 100


def parse_seconds(text: str, key: str) -> float:
    """Parse `30`, `30s`, `500ms`, `2m` or `1h`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", text)
    if not match:
        raise BadInput(f"{text!r} is not a time like 500ms, 30s, 2m or 1h", key=key)
    seconds = float(match.group(1)) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match.group(2) or "s"]
    if seconds <= 0:
        raise BadInput("must be greater than zero", key=key)
    return seconds


LevelKey = tuple[int, float | None]


def offered_load(key: LevelKey) -> float:
    """Return C, or the rate of an open loop."""
    c, rate = key
    return c if rate is None else rate


def level_name(key: LevelKey) -> str:
    c, rate = key
    return f"C={c}" if rate is None else f"{rate:g}/s"


class PerLevel(Stored, frozen=True, kw_only=True):
    """Base of structs that belong to one level."""

    c: int
    rate: float | None = None

    @property
    def key(self) -> LevelKey:
        """Identifies the level within its session, and finds the same level in another one."""
        return self.c, self.rate

    @property
    def offered_load(self) -> float:
        return offered_load(self.key)

    @property
    def name(self) -> str:
        return level_name(self.key)


def is_open_loop(levels: Iterable[PerLevel]) -> bool:
    return any(level.rate is not None for level in levels)


def load_title(levels: Iterable[PerLevel]) -> str:
    """Return the title of the column that identifies a level."""
    return "rate" if is_open_loop(levels) else "C"
