"""One agent of the swarm: takes a task, sends its turns one after another, and makes a record of each."""

from __future__ import annotations

from collections.abc import Callable

from swarmtui.loadgen import dialects
from swarmtui.loadgen.clock import monotonic_ns
from swarmtui.loadgen.endpoint_pool import Route
from swarmtui.loadgen.http_exchange import Exchange
from swarmtui.model.plan import Timeouts
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.worker_protocol import StreamRow, Stretch, Watched
from swarmtui.model.workload import Message, Task

# After an error an agent waits before its next request, longer each time, so that a dead server is not hammered.
_BACKOFF_S = 0.05
_BACKOFF_MAX_S = 2.0

# A text that nobody asked to keep goes along with a record only to be counted, and only up to here.
_MAX_TEXT = 1 << 20


class Agent:
    """`over` is called when a record is made, `free` when the agent can take another task.

    What is sent belongs to the `stretch` of that moment, also when the task was begun in an earlier one.
    """

    __slots__ = (
        "_exchange", "_failures", "_field_retries", "_free", "_keep_text", "_left_out", "_messages", "_over",
        "_retried", "_route", "_seen", "_state_seen", "_stopped", "_stretch", "_t_sched", "_t_try", "_task",
        "_told", "_turn", "number", "stretch",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        stretch: Stretch,
        keep_text: bool,
        over: Callable[[Record], None],
        free: Callable[[Agent, float], None],
    ) -> None:
        self.number, self.stretch = number, stretch
        self._keep_text, self._over, self._free = keep_text, over, free
        self._task: Task | None = None
        self._exchange: Exchange | None = None
        self._route: Route | None = None
        self._messages: tuple[Message, ...] = ()
        self._left_out: tuple[str, ...] = ()
        self._failures = 0
        self._seen = 0
        self._told = (0, 0, 0)
        self._state_seen = ""

    @property
    def busy(self) -> bool:
        return self._task is not None

    @property
    def waiting(self) -> bool:
        return self._exchange is not None and not self._exchange.answer.times

    def begin(self, task: Task, route: Route, due_ns: int | None = None) -> None:
        """`due_ns`: when the first request was to be sent, where that is not now."""
        self._task, self._stopped = task, False
        self._turn, self._messages = 0, task.messages
        self._ask(route, due_ns)

    def _ask(self, route: Route, due_ns: int | None = None) -> None:
        self._route, self._stretch = route, self.stretch
        self._t_sched = monotonic_ns() if due_ns is None else due_ns
        self._left_out = ()
        self._field_retries = 0
        self._retried = False
        self._seen, self._told = 0, (0, 0, 0)
        route.in_flight += 1
        self._send()

    def _send(self) -> None:
        assert self._task is not None and self._route is not None
        route, target = self._route, self._route.target
        without = route.refused.union(self._left_out)
        body = dialects.body(target.dialect, target.model, self._task, self._messages, without)
        self._exchange = Exchange(route, route.request(body), self._answered)
        self._t_try = monotonic_ns()
        self._exchange.start(fresh=self._retried)

    def _answered(self) -> None:
        assert self._task is not None and self._route is not None and self._exchange is not None
        exchange, answer = self._exchange, self._exchange.answer
        if (
            exchange.reused
            and not exchange.bytes_seen
            and not self._retried
            and not self._stopped
            and answer.error in ("reset", "closed_early")
        ):
            # The server had closed the idle connection: no request was lost, and no time of it counts.
            self._retried = True
            self._send()
            return
        if exchange.status in (400, 422) and not self._stopped and self._drop_field(answer.error_detail):
            self._send()
            return
        if answer.error is None and self._left_out:
            self._route.refused.update(self._left_out)
        self._route.in_flight -= 1
        record = self._record(exchange)
        followups = self._task.followups
        self._exchange = None
        if answer.error is None and not self._stopped and self._turn < len(followups):
            self._messages += (
                Message(role="assistant", content="".join(answer.content)),
                Message(role="user", content=followups[self._turn]),
            )
            self._over(record)
            self._turn += 1
            self._ask(self._route)
            return
        self._task = None
        self._failures = 0 if answer.error is None or answer.error == CANCELLED else self._failures + 1
        self._over(record)
        pause = min(_BACKOFF_MAX_S, _BACKOFF_S * 2 ** (self._failures - 1)) if self._failures else 0.0
        self._free(self, pause)

    def _drop_field(self, complaint: str) -> bool:
        """Some servers refuse what they do not know: leave out the field they name, else all that can be left out."""
        assert self._task is not None and self._route is not None
        fields = dialects.optional_fields(self._route.target.dialect, self._task)
        left = [f for f in fields if f not in self._left_out and f not in self._route.refused]
        if not left or self._field_retries >= 3:
            return False
        named = [field for field in left if field in complaint]
        self._field_retries += 1
        self._left_out += tuple(named or left)
        return True

    def check_time(self, now: int, limits: Timeouts) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        sent = exchange.t_sent
        if sent is None:
            if now - self._t_try > limits.connect * 1e9:
                exchange.cancel("connect_timeout", f"no connection within {limits.connect:g} s")
            return
        times = exchange.answer.times
        if not times and now - sent > limits.first_token * 1e9:
            exchange.silent("first_token_timeout", f"no token within {limits.first_token:g} s")
        elif now - sent > limits.total * 1e9:
            exchange.silent("total_timeout", f"no end within {limits.total:g} s")
        elif times and now - times[-1] > limits.idle * 1e9:
            exchange.silent("idle_timeout", f"no token for {limits.idle:g} s")

    def cancel(self) -> None:
        self._stopped = True
        if self._exchange is not None:
            self._exchange.cancel(CANCELLED, "cancelled by the client")

    def changed_row(self) -> StreamRow | None:
        """What is new since the last frame, or None."""
        exchange, task = self._exchange, self._task
        state = self._state()
        total = len(exchange.answer.times) if exchange else 0
        if state == self._state_seen and total == self._seen:
            return None
        chunks, self._seen, self._state_seen = max(0, total - self._seen), total, state
        ttft = None
        if exchange is not None and exchange.t_sent is not None and total:
            # Of a request that was due at a set time, a late client is part of the wait.
            begun = exchange.t_sent if task is None or task.at_ns is None else self._t_sched
            ttft = (exchange.answer.times[0] - begun) / 1e9
        return StreamRow(
            self.number, state, task.id if task else -1, task.type if task else "",
            (exchange.t_sent or 0) if exchange else 0, chunks, total, ttft,
        )  # fmt: skip

    def _state(self) -> str:
        exchange = self._exchange
        if exchange is None:
            return "backing off" if self._failures else "idle"
        if exchange.t_sent is None:
            return "connecting"
        if exchange.answer.times:
            return "writing" if exchange.answer.content else "thinking"
        return "waiting" if exchange.t_headers is None else "prefill"

    def watch_anew(self) -> None:
        """Somebody looks who has seen nothing of it yet."""
        self._told = (0, 0, 0)

    def news(self) -> Watched:
        """For the one that is watched: stamps, and what came since it was last asked."""
        exchange, task = self._exchange, self._task
        if exchange is None or task is None or self._route is None:
            return Watched(self.number, -1)
        answer, (chunks, reasoned, written) = exchange.answer, self._told
        reasoning, reasoned = self._route.tellable(answer.reasoning, reasoned)
        content, written = self._route.tellable(answer.content, written)
        self._told = (len(answer.times), reasoned, written)
        return Watched(
            self.number, task.id, self._turn, task.type, self._t_sched, exchange.t_sent, exchange.t_headers,
            answer.t_first_content, tuple(answer.times[chunks:]), reasoning, content,
        )  # fmt: skip

    def _record(self, exchange: Exchange) -> Record:
        assert self._task is not None and self._route is not None
        task, stretch, answer, times = self._task, self._stretch, exchange.answer, exchange.answer.times
        tokens, source = answer.tokens()
        ok = answer.error is None
        without, discreet = self._route.refused.union(self._left_out), self._route.discreet
        keep = self._keep_text or task.check is not None or task.with_text or (ok and source == "chunks")
        return Record(
            task=task.id,
            turn=self._turn,
            id=discreet(answer.id),
            type=task.type,
            stretch=stretch.number,
            c=stretch.c,
            run=stretch.run,
            phase=stretch.phase,
            agent=self.number,
            endpoint=self._route.index,
            t_sched_ns=self._t_sched,
            t_sent_ns=exchange.t_sent,
            t_headers_ns=exchange.t_headers,
            t_event_ns=answer.t_first_event,
            t_first_ns=times[0] if times else None,
            t_first_reasoning_ns=answer.t_first_reasoning,
            t_first_content_ns=answer.t_first_content,
            t_last_ns=times[-1] if times else None,
            t_done_ns=exchange.t_done,
            stamp="kernel" if exchange.kernel else "read",
            chunks=len(times),
            shared_reads=answer.shared_reads,
            chunk_us=answer.chunk_us(),
            chunk_tokens=answer.chunk_tokens(),
            first_tokens=answer.first_tokens(tokens) if times and tokens else None,
            tokens_in=answer.tokens_in,
            tokens_out=tokens,
            cached_tokens=answer.cached_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            token_source=source,
            engine_decode_tps=answer.engine_decode_tps,
            engine_prefill_s=answer.engine_prefill_s,
            finish_reason=discreet(answer.finish_reason) if answer.finish_reason else None,
            cap_hit=ok and answer.finish_reason == "length" and not task.exact,
            degenerate=ok and answer.degenerate(tokens, task.exact),
            retried=self._retried,
            left_out=tuple(f for f in dialects.optional_fields(self._route.target.dialect, task) if f in without),
            error=answer.error,
            error_detail=discreet(answer.error_detail),
            text=discreet("".join(answer.content))[:_MAX_TEXT] if keep else None,
            reasoning=discreet("".join(answer.reasoning))[:_MAX_TEXT] if keep else None,
        )
