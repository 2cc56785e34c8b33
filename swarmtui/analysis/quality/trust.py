"""May the figures be believed? Each line with its figure, its state and one sentence; the worst is the light."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from swarmtui.analysis.machine.energy import THROTTLE_REASONS
from swarmtui.model.record import TokenSource
from swarmtui.model.schema import Stored
from swarmtui.model.telemetry import QualityLine

State = Literal["ok", "doubtful", "wrong"]

_HEAT = THROTTLE_REASONS - {"power cap"}
_BLINK = 0.05  # of the time: a GPU that touches its limit for a moment


class Facts(Stored, frozen=True, kw_only=True):
    """All that is known; null is not known, and gives no line.

    `lag_p99_ms` is how late the client's loop was, `tpot_s` the median gap between a stream's tokens. `strangers` are
    requests on the server that are not ours (see there). Tokens are output tokens of the same requests, counted by us
    and by the server. `cached_share` is the part of the prompts that came from the cache, `throttled` a share of the
    time.
    """

    lag_p99_ms: float | None = None
    tpot_s: float | None = None
    kernel_stamps: bool | None = None
    worker_cpu: float | None = None
    c_target: float | None = None
    c_achieved: float | None = None
    in_flight: float | None = None
    strangers: float | None = None
    token_source: TokenSource | Literal["mixed"] | None = None
    client_tokens: float | None = None
    server_tokens: float | None = None
    client_decode_tps: float | None = None
    engine_decode_tps: float | None = None
    cold_promised: bool = False
    cached_share: float | None = None
    preemptions: float | None = None
    throttled: float | None = None
    throttle: tuple[str, ...] = ()
    clock_steps: int | None = None
    shared_reads: float | None = None
    restarted: bool = False


def judge(facts: Facts) -> tuple[QualityLine, ...]:
    return tuple(line for rule in _RULES for line in rule(facts))


def strangers(looks: Sequence[tuple[float, float]]) -> float | None:
    """Requests of others, from several looks at (our requests in flight, the server's running + waiting).

    The two are never read at the same instant, so one look may be off by what came or went between; the smallest
    excess of several is what was there all the time.
    """
    return max(0.0, min(server - ours for ours, server in looks)) if looks else None


def _lag(facts: Facts) -> Iterator[QualityLine]:
    if facts.lag_p99_ms is None or not facts.tpot_s:
        return
    part = facts.lag_p99_ms / 1e3 / facts.tpot_s
    sentence = "the client keeps up with the tokens"
    state = _graded(part, 0.10, 1.0)
    if state != "ok":
        sentence = "the client is late at its work; run it on a quieter machine, or with fewer streams"
        if facts.kernel_stamps:
            state = "doubtful"
            sentence = "the client is late at its work, though arrival times are the kernel's and do not move"
    yield QualityLine(
        name="client lag",
        state=state,
        value=f"p99 {facts.lag_p99_ms:.3g} ms, {_percent(part)} of a token's time",
        sentence=sentence,
    )


def _cpu(facts: Facts) -> Iterator[QualityLine]:
    if facts.worker_cpu is None:
        return
    state = _graded(facts.worker_cpu, 0.70, 0.95)
    sentence = "there is room" if state == "ok" else "the client itself may be the limit; fewer streams, or more cores"
    yield QualityLine(
        name="client CPU", state=state, value=f"{_percent(facts.worker_cpu)} of a core", sentence=sentence
    )


def _concurrency(facts: Facts) -> Iterator[QualityLine]:
    if facts.c_achieved is None or not facts.c_target:
        return
    state = _graded(abs(facts.c_achieved / facts.c_target - 1.0), 0.05, 0.25)
    sentence = "as many streams as wanted were at work"
    if state != "ok":
        sentence = "not the wanted number of streams was at work: the figures are of another C"
    value = f"{round(facts.c_achieved, 1 if facts.c_achieved < 100 else None):g} of {facts.c_target:g}"
    yield QualityLine(name="achieved C", state=state, value=value, sentence=sentence)


def _others(facts: Facts) -> Iterator[QualityLine]:
    if facts.strangers is None or facts.in_flight is None:
        return
    state = _graded(facts.strangers / max(1.0, facts.in_flight), 0.05, 0.25)
    if facts.strangers < 1.0:
        state = "ok"
    sentence = "nobody else uses the server" if state == "ok" else "somebody else uses the server, and slows it down"
    value = f"{facts.strangers:g} beside our {facts.in_flight:g}"
    yield QualityLine(name="others on the server", state=state, value=value, sentence=sentence)


def _source(facts: Facts) -> Iterator[QualityLine]:
    if facts.token_source is None:
        return
    sentences: dict[str, str] = {
        "tokenize": "counted afterwards by the server's tokenizer: special tokens may be missing",
        "chunks": "chunks were counted, and a chunk can hold several tokens",
        "mixed": "requests were counted in different ways",
    }
    sentence = sentences.get(facts.token_source, "the server counts its tokens itself")
    state: State = "doubtful" if facts.token_source in sentences else "ok"
    yield QualityLine(name="token source", state=state, value=facts.token_source.replace("_", " "), sentence=sentence)


def _tokens(facts: Facts) -> Iterator[QualityLine]:
    if facts.client_tokens is None or facts.server_tokens is None:
        return
    apart = abs(facts.client_tokens - facts.server_tokens)
    state = _graded(apart / max(1.0, facts.server_tokens), 0.0, 0.01)
    sentence = "client and server count alike"
    if state != "ok":
        sentence = "client and server count differently: others on the server, or requests that ended early"
    value = f"{facts.client_tokens:,.0f} by us, {facts.server_tokens:,.0f} by the server"
    yield QualityLine(name="tokens", state=state, value=value, sentence=sentence)


def _rates(facts: Facts) -> Iterator[QualityLine]:
    if facts.client_decode_tps is None or not facts.engine_decode_tps:
        return
    state = _graded(abs(facts.client_decode_tps / facts.engine_decode_tps - 1.0), 0.03, 0.10)
    sentence = "client and engine agree on the speed of a stream"
    if state != "ok":
        sentence = "client and engine disagree on the speed of a stream: something between them holds tokens back"
    value = f"{facts.client_decode_tps:.4g} tok/s by us, {facts.engine_decode_tps:.4g} by the engine"
    yield QualityLine(name="decode rate", state=state, value=value, sentence=sentence)


def _cache(facts: Facts) -> Iterator[QualityLine]:
    if not facts.cold_promised:
        return
    if facts.cached_share is None:
        sentence = "the server does not say; prompts differ from their first word on"
        yield QualityLine(name="cold cache", state="ok", value="not known", sentence=sentence)
        return
    state = _graded(facts.cached_share, 0.02, 0.10)
    sentence = "prompts are new to the server"
    if state != "ok":
        sentence = "the cache knew prompts that were to be new: TTFT is better than it should be"
    yield QualityLine(
        name="cold cache", state=state, value=f"{_percent(facts.cached_share)} from the cache", sentence=sentence
    )


def _preemptions(facts: Facts) -> Iterator[QualityLine]:
    if facts.preemptions is None:
        return
    state: State = "doubtful" if facts.preemptions > 0 else "ok"
    sentence = "the KV cache had room for all"
    if state != "ok":
        sentence = "the KV cache was full: requests were thrown out and begun again"
    yield QualityLine(name="preemptions", state=state, value=f"{facts.preemptions:g}", sentence=sentence)


def _throttling(facts: Facts) -> Iterator[QualityLine]:
    if facts.throttled is None:
        return
    lowered = [reason for reason in facts.throttle if reason in THROTTLE_REASONS]
    state = _graded(facts.throttled, 0.0, _BLINK)
    if state == "wrong" and not _HEAT.intersection(lowered):
        state = "doubtful"  # at its power limit a GPU is as fast as this machine lets it be
    sentence = "the GPUs ran at the clocks they wanted"
    if state != "ok":
        sentence = "clocks were lowered: another day, or a cooler machine, gives other figures"
    value = " ".join(filter(None, (f"{_percent(facts.throttled)} of the time", ", ".join(lowered))))
    yield QualityLine(name="throttling", state=state, value=value, sentence=sentence)


def _clock(facts: Facts) -> Iterator[QualityLine]:
    if facts.clock_steps is None:
        return
    state: State = "doubtful" if facts.clock_steps else "ok"
    sentence = "the clock ran evenly"
    if state != "ok":
        sentence = "this machine's clock was set meanwhile; arrival times around that moment may be off"
    yield QualityLine(name="clock", state=state, value=f"{facts.clock_steps} steps", sentence=sentence)


def _shared(facts: Facts) -> Iterator[QualityLine]:
    if facts.shared_reads is None:
        return
    state = _graded(facts.shared_reads, 0.01, 0.25)
    sentence = "each chunk has a time of its own"
    if state != "ok":
        sentence = "chunks came several at once: gaps between tokens are blurred, totals are not"
    yield QualityLine(name="shared reads", state=state, value=_percent(facts.shared_reads), sentence=sentence)


def _restart(facts: Facts) -> Iterator[QualityLine]:
    if facts.restarted:
        sentence = "the server was started anew meanwhile: its counters, and perhaps its flags, are others"
        yield QualityLine(name="server", state="wrong", value="restarted", sentence=sentence)


_RULES = (
    _restart, _lag, _cpu, _concurrency, _others, _source, _tokens, _rates, _cache, _preemptions, _throttling, _clock,
    _shared,
)  # fmt: skip


def _graded(value: float, ok: float, doubtful: float) -> State:
    return "ok" if value <= ok else "doubtful" if value <= doubtful else "wrong"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
