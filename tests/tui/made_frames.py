"""Frames by hand: as many streams as wanted, and whatever text a server might send."""

from __future__ import annotations

from swarmtui.model.client_protocol import Answered, Frame, Hello, Watched
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan
from swarmtui.model.session import Client, Session, Spread
from swarmtui.model.telemetry import Gpu, Telemetry, Trust
from swarmtui.model.worker_protocol import StreamRow

T0 = 1_000_000_000


def hello(model: str = "model", label: str = "") -> Hello:
    session = Session(
        id="20260101-000000-0000",
        created="2026-01-01T00:00:00+00:00",
        t0_ns=T0,
        endpoints=(Endpoint(url="http://127.0.0.1:8000", model=model, engine="vLLM"),),
        workload="coding",
        workload_digest="",
        workload_spec={},
        plan=Plan(),
        client=Client(version="0", python="3", host="host", cores=2),
        label=label,
    )
    return Hello(session, "/nowhere")


def watched(words: str, text: str, now: int) -> Watched:
    """Of agent 0: an answer under way, and one before it that was judged."""
    earlier = Answered(
        task=0, turn=0, type=words, error=None, verdict="pass in reasoning", ttft_s=0.1, tokens_out=90, decode_tps=40.0,
        e2e_s=2.3, preview=text,
    )  # fmt: skip
    begun = now - 5_000_000_000
    return Watched(
        agent=0, task=7, type=words, t_sched_ns=begun, t_sent_ns=begun + 80_000, t_headers_ns=begun + 3_000_000,
        t_first_ns=begun + 120_000_000, t_last_ns=now, chunks=100, gaps_s=Spread(n=99, p50=0.049, max=0.31),
        recent_gaps_s=(0.049,) * 98 + (0.31,), reasoning=text, text=text, before=(earlier,),
    )  # fmt: skip


def frame(streams: int, *, at_s: float = 10.0, words: str = "implement", total: int = 100, text: str = "") -> Frame:
    now = T0 + int(at_s * 1e9)
    gpu = Gpu(
        uuid="GPU-1",
        index=0,
        name=words,
        memory_used=8 << 30,
        memory_total=24 << 30,
        power_w=200.0,
        power_limit_w=350.0,
    )
    return Frame(
        t_ns=now,
        status="running",
        note=words,
        elapsed_s=at_s,
        left_s=60.0,
        done=3,
        of=8,
        c=streams,
        run=1,
        runs=2,
        in_flight=streams,
        waiting=0,
        out_tps=streams * 40.0,
        per_stream_tps=40.0,
        ttft_s=0.123,
        finished=20,
        errors=1,
        error_counts={words: 1},
        lag_ms=0.5,
        worker_cpu=0.1,
        shared_reads=0,
        clock_steps=0,
        levels=(),
        warnings=(words,),
        rows=tuple(StreamRow(n, "writing", n, words, now - 5_000_000_000, 4, total, 0.12) for n in range(streams)),
        watched=watched(words, text, now),
        telemetry=Telemetry(t_ns=now, gpus=(gpu,)),
        trust=(Trust(name=words, state="doubtful", value=words, sentence=words),),
    )
