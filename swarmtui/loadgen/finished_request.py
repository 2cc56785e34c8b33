"""Make the record of a finished request."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.loadgen.connection import CLIENT_FAULT, fault_text
from swarmtui.loadgen.endpoint_pool import EndpointPool
from swarmtui.loadgen.http_exchange import HttpExchange
from swarmtui.loadgen.response import Response
from swarmtui.model.record import CANCELLED, Phase, Record
from swarmtui.model.worker_protocol import StartStage
from swarmtui.model.workload import Task

# The longest text, error and name that a record carries.
_MAX_TEXT = 1 << 20
_MAX_DETAIL = 500
_MAX_NAME = 200


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
