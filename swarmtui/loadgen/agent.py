"""Run one agent of the swarm: send the turns of a task in order, and make the records of its requests."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

from swarmtui.loadgen.connection import CLIENT_FAULT, fault_text
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.loadgen.response import Response
from swarmtui.model.load import ERROR_PAUSE_S
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.worker_protocol import StartStage, StreamRow, TextTail, WatchedUpdate
from swarmtui.model.workload import Followup, Message, Task

# The longest pause after errors.
_MAX_PAUSE_S = 2.0
# The most text of the watched stream in one update; what is left follows in later ones.
_MAX_UPDATE = 64 << 10
# Reads that wait to be parsed are parsed when the stream has been silent for this long.
_WAITING_NS = 100_000_000
# The characters of a response that a table of streams may show.
_TAIL = 600
_CANCELLED_BY_CLIENT = "cancelled by the client"
# The longest text, error and name that a record carries.
_MAX_TEXT = 1 << 20
_MAX_DETAIL = 500
_MAX_NAME = 200


class Agent:
    """Calls `on_finished` with each finished request, and `on_free` when it can take another task.

    A request belongs to the stage in which it is sent, even if its task was started in an earlier one.
    """

    __slots__ = (
        "_cancelled", "_chunks_reported", "_exchange", "_failures", "_field_retries", "_keep_text", "_messages",
        "_omitted", "_on_finished", "_on_free", "_phase", "_pool", "_retried", "_sent_stage", "_state_reported",
        "_t_sched", "_t_try", "_tail_chunks", "_task", "_turn", "_watched_up_to", "number", "stage",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        stage: StartStage,
        keep_text: bool,
        on_finished: Callable[[FinishedRequest], None],
        on_free: Callable[[Agent, float], None],
    ) -> None:
        self.number, self.stage = number, stage
        self._keep_text, self._on_finished, self._on_free = keep_text, on_finished, on_free
        self._task: Task | None = None
        self._exchange: HttpExchange | None = None
        self._pool: EndpointPool | None = None
        self._messages: tuple[Message, ...] = ()
        self._omitted: tuple[str, ...] = ()
        self._failures = 0
        self._chunks_reported = 0
        self._watched_up_to = (0, 0, 0)
        self._tail_chunks: int | None = None
        self._state_reported: tuple[str, int | None] = ("", None)

    @property
    def busy(self) -> bool:
        return self._task is not None

    @property
    def measured(self) -> bool:
        return self._task is not None and self._phase == self.stage.phase

    @property
    def waiting(self) -> bool:
        return self._exchange is not None and not self._exchange.response.times

    def start(self, task: Task, pool: EndpointPool, due_ns: int | None = None) -> None:
        """Start a task; `due_ns` is when its first request was scheduled, if not now."""
        self._task, self._cancelled = task, False
        self._phase = task.phase if self.stage.phase == "level" else self.stage.phase
        self._turn, self._messages = 0, task.messages
        self._start_turn(pool, due_ns)

    def _start_turn(self, pool: EndpointPool, due_ns: int | None = None) -> None:
        self._pool, self._sent_stage = pool, self.stage
        self._t_sched = perf_counter_ns() if due_ns is None else due_ns
        self._omitted = ()
        self._field_retries = 0
        self._retried = False
        self._chunks_reported, self._watched_up_to, self._tail_chunks = 0, (0, 0, 0), None
        pool.in_flight += 1
        self._send()

    def _send(self) -> None:
        assert self._task is not None and self._pool is not None
        pool = self._pool
        self._exchange = HttpExchange(pool, self._on_done)
        self._t_try = perf_counter_ns()
        try:
            omit = pool.rejected_fields.union(self._omitted)
            headers = self._task.headers[self._turn] if self._task.headers else ()
            body = pool.dialect.body(pool.target.model, self._task, headers + self._messages, omit)
            self._exchange.start(pool.request(body), new_connection=self._retried)
        except Exception as error:  # noqa: BLE001 — a fault ends its own request only
            self._exchange.abort(error)

    def _on_done(self) -> None:
        assert self._task is not None and self._pool is not None and self._exchange is not None
        exchange, response = self._exchange, self._exchange.response
        if self._task.followups:
            exchange.finish_parsing()
        stale = exchange.reused and not exchange.bytes_seen and response.error in ("reset", "closed_early")
        if stale and self._cancelled:
            # The connection ended just before the request was cancelled, which would have been sent again otherwise.
            response.error, response.error_detail = CANCELLED, _CANCELLED_BY_CLIENT
        elif stale and not self._retried:
            # The server had closed the idle connection: send again; the first attempt does not count.
            self._retried = True
            if exchange.connection_served:
                self._pool.count_reuse(failed=True)
            self._send()
            return
        if exchange.connection_served and exchange.bytes_seen and not self._pool.closes_connections:
            self._pool.count_reuse(failed=False)
        if exchange.status in (400, 422) and not self._cancelled and self._omit_rejected_fields(response.error_detail):
            self._send()
            return
        if response.error is None and self._omitted:
            self._pool.rejected_fields.update(self._omitted)
        self._pool.in_flight -= 1
        finished = FinishedRequest(
            exchange, self._task, self._turn, self._sent_stage, self._phase, self.number, self._pool, self._t_sched,
            self._retried, self._omitted, self._keep_text,
        )  # fmt: skip
        self._on_finished(finished)
        response, followups = exchange.response, self._task.followups
        self._exchange = None
        if response.error is None and not self._cancelled and self._turn < len(followups):
            self._messages += _next_messages("".join(response.content), followups[self._turn])
            self._turn += 1
            self._start_turn(self._pool)
            return
        self._task = None
        self._failures = 0 if response.error is None or response.error == CANCELLED else self._failures + 1
        pause = min(_MAX_PAUSE_S, ERROR_PAUSE_S * 2 ** (self._failures - 1)) if self._failures else 0.0
        self._on_free(self, pause)

    def _omit_rejected_fields(self, error: str) -> bool:
        """Omit the optional fields that the error names, or else all of them; return whether to retry."""
        assert self._task is not None and self._pool is not None
        fields = self._pool.dialect.optional_fields(self._task)
        sent = [f for f in fields if f not in self._omitted and f not in self._pool.rejected_fields]
        if not sent or self._field_retries >= 3:
            return False
        named = [field for field in sent if field in error or field.replace("_", " ") in error]
        self._field_retries += 1
        self._omitted += tuple(named or sent)
        return True

    def check_timeouts(self, now: int, limits: Timeouts) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        sent = exchange.t_sent
        if sent is None:
            if now - self._t_try > limits.connect * 1e9:
                exchange.cancel("connect_timeout", f"no connection within {limits.connect:g} s")
            return
        exchange.read_kept(before_ns=now - _WAITING_NS)
        times = exchange.response.times
        if not times and now - sent > limits.first_token * 1e9:
            exchange.time_out("first_token_timeout", f"no token within {limits.first_token:g} s")
        elif now - sent > limits.total * 1e9:
            exchange.time_out("total_timeout", f"no end within {limits.total:g} s")
        elif times and now - times[-1] > limits.idle * 1e9:
            exchange.time_out("idle_timeout", f"no token for {limits.idle:g} s")

    def cancel(self) -> None:
        self._cancelled = True
        if self._exchange is not None:
            self._exchange.cancel(CANCELLED, _CANCELLED_BY_CLIENT)

    def row_if_changed(self) -> StreamRow | None:
        """Return the agent's row for a frame, or None if nothing changed since the last one."""
        exchange, task = self._exchange, self._task
        # A request that was sent since the last frame is reported, although the one before was waiting, too.
        state = (self._state(), exchange.t_sent if exchange else None)
        # A read that turns out to have no output was counted too early: the count never falls.
        total = max(exchange.chunks, self._chunks_reported) if exchange else 0
        if state == self._state_reported and total == self._chunks_reported:
            return None
        chunks, self._chunks_reported, self._state_reported = max(0, total - self._chunks_reported), total, state
        ttft = None
        if exchange is not None and exchange.t_sent is not None and total:
            # A scheduled request counts from its due time: a late client is part of the wait.
            start = exchange.t_sent if task is None or task.at_ns is None else self._t_sched
            ttft = (exchange.response.times[0] - start) / 1e9
        return StreamRow(
            self.number, state[0], task.id if task else -1, task.type if task else "",
            (exchange.t_sent or 0) if exchange else 0, chunks, total, ttft, exchange.span_s if exchange else 0.0,
            exchange is not None and self._phase == "level",
        )  # fmt: skip

    def _state(self) -> str:
        exchange = self._exchange
        if exchange is None:
            return "backing off" if self._failures else "idle"
        if exchange.t_sent is None:
            return "connecting"
        if exchange.response.times:
            return "writing" if exchange.response.content else "thinking"
        return "waiting" if exchange.t_headers is None else "prefill"

    def restart_watch(self) -> None:
        """Report the current request from its beginning in the next update."""
        self._watched_up_to = (0, 0, 0)

    def restart_tail(self) -> None:
        """Report the end of the text again, even if it has not changed."""
        self._tail_chunks = None

    def watched_update(self) -> WatchedUpdate:
        """Return the stamps of the current request, and its output since the last update."""
        exchange, task = self._exchange, self._task
        if exchange is None or task is None or self._pool is None:
            return WatchedUpdate(self.number, -1)
        exchange.read_kept()
        response, (chunks, reasoned, written) = exchange.response, self._watched_up_to
        redact_streamed = self._pool.redactor.redact_streamed
        reasoning, more_reasoned = redact_streamed("".join(response.reasoning)[reasoned : reasoned + _MAX_UPDATE])
        content, more_written = redact_streamed("".join(response.content)[written : written + _MAX_UPDATE])
        self._watched_up_to = (len(response.times), reasoned + more_reasoned, written + more_written)
        return WatchedUpdate(
            self.number, task.id, self._turn, task.type, self._t_sched, exchange.t_sent, exchange.t_headers,
            response.t_first_content, tuple(response.times[chunks:]), reasoning, content,
        )  # fmt: skip

    def tail_if_changed(self) -> TextTail | None:
        """Return the end of the current response's text, or None if nothing was added since the last call."""
        response = None
        if self._exchange is not None and self._pool is not None:
            self._exchange.read_kept()
            response = self._exchange.response
        chunks = len(response.times) if response is not None else 0
        if chunks == self._tail_chunks:
            return None
        self._tail_chunks = chunks
        if response is None or self._pool is None:
            return TextTail(self.number, 0, "")
        redactor = self._pool.redactor
        tail = response.tail(_TAIL + redactor.longest)
        shown = redactor.redact_end(tail, _TAIL)
        # What was redacted or held back does not count, so that the beginning of the tail stays where it is.
        return TextTail(self.number, response.chars - min(len(tail), _TAIL) + len(shown), shown)


def _next_messages(answer: str, followup: Followup) -> tuple[Message, ...]:
    """Return the answer and what follows it; the model did not necessarily make the call that a tool turn contains."""
    if isinstance(followup, str):
        return Message(role="assistant", content=answer), Message(role="user", content=followup)
    call = followup.call
    return (
        Message(role="assistant", content=answer, tool_calls=(call,)),
        Message(role="tool", content=followup.result, tool_call_id=call.id),
    )


class FinishedRequest(NamedTuple):
    """The parts of a record. Making it takes longer than starting the next request, and can wait."""

    exchange: HttpExchange
    task: Task
    turn: int
    stage: StartStage
    phase: Phase
    agent: int
    pool: EndpointPool
    t_sched: int
    retried: bool
    omitted: tuple[str, ...]
    keep_text: bool

    def record(self) -> Record:
        self.exchange.finish_parsing()
        return self._record(self.exchange.response)

    def faulty_record(self, error: Exception) -> Record:
        failed = Response()
        failed.fail(CLIENT_FAULT, fault_text(error))
        return self._record(failed)

    def _record(self, response: Response) -> Record:
        exchange, task, stage, times = self.exchange, self.task, self.stage, response.times
        tokens, source = response.token_count()
        finish_reason = response.final_reason(tokens, task.max_tokens)
        ok = response.error is None
        omitted, redact_start = self.pool.rejected_fields.union(self.omitted), self.pool.redactor.redact_start
        keep = self.keep_text or task.check is not None or task.with_text or (ok and source == "chunks")
        return Record(
            task=task.id,
            turn=self.turn,
            turns=1 + len(task.followups),
            id=redact_start(response.id, _MAX_NAME),
            type=task.type,
            stage=stage.number,
            c=stage.c,
            run=stage.run,
            phase="unfinished" if response.error == CANCELLED and self.phase == "level" else self.phase,
            agent=self.agent,
            endpoint=self.pool.index,
            t_sched_ns=self.t_sched,
            t_sent_ns=exchange.t_sent,
            t_headers_ns=exchange.t_headers,
            t_event_ns=response.t_first_event,
            t_first_ns=times[0] if times else None,
            t_first_reasoning_ns=response.t_first_reasoning,
            t_first_content_ns=response.t_first_content,
            t_last_ns=times[-1] if times else None,
            t_finish_ns=response.t_finish,
            t_done_ns=exchange.t_done,
            stamp="kernel" if exchange.kernel_stamped else "read",
            chunks=len(times),
            coalesced_chunks=response.coalesced_chunks,
            first_coalesced=response.first_coalesced(),
            chunk_us=response.chunk_us(),
            chunk_tokens=response.chunk_tokens(),
            first_tokens=response.first_tokens(tokens) if times and tokens else None,
            tokens_in=response.tokens_in,
            tokens_out=tokens,
            cached_tokens=response.cached_tokens,
            cache_write_tokens=response.cache_write_tokens,
            reasoning_tokens=response.reasoning_tokens,
            token_source=source,
            engine_decode_tps=response.engine_decode_tps,
            engine_prefill_s=response.engine_prefill_s,
            engine=response.engine,
            finish_reason=redact_start(finish_reason, _MAX_NAME) if finish_reason else None,
            cap_hit=ok and finish_reason == "length" and not task.exact,
            degenerate=ok and response.degenerate(tokens, task.exact),
            retried=self.retried,
            new_connection=self.pool.closes_connections,
            left_out=tuple(f for f in self.pool.dialect.optional_fields(task) if f in omitted),
            error=response.error,
            error_detail=redact_start(response.error_detail, _MAX_DETAIL),
            text=redact_start("".join(response.content), _MAX_TEXT) if keep else None,
            reasoning=redact_start("".join(response.reasoning), _MAX_TEXT) if keep else None,
            replayed=task.replayed,
        )
