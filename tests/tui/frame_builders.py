"""Build frames with any number of streams and any text that a server might send."""

from __future__ import annotations

from typing import Any

from swarmtui.model.client_protocol import (
    ClientCommand,
    EarlierRequest,
    Ended,
    Frame,
    Hello,
    ProvisionalLevel,
    SessionWarning,
    StreamRate,
    WatchedStream,
    WatchTails,
)
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.plan import Plan
from swarmtui.model.record import Waterfall
from swarmtui.model.session import ClientInfo, Session, Spread
from swarmtui.model.telemetry import DiscoveredServer, Gpu, QualityLine, Telemetry
from swarmtui.model.worker_protocol import StreamRow, TextTail
from swarmtui.report.table import Table
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.baseline import Baseline
from swarmtui.tui.frame_source import LiveSource
from swarmtui.tui.live.live_panel import LiveData
from swarmtui.tui.live_model import LiveModel

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
        client=ClientInfo(version="0", python="3", host="host", cores=2),
        label=label,
    )
    return Hello(session, "/nowhere")


def live_data(live: LiveModel, **changes: Any) -> LiveData:
    """What a live screen gives its panels, at its start."""
    data = LiveData(
        shown=live, has_ended=False, is_replay=False, only_panel=None, order="agent", filter_text="", is_map=False,
        baseline=Baseline(), pair=None, comparison="",
    )  # fmt: skip
    return data._replace(**changes)


class RecordingSource(LiveSource):
    """A run that never changes by itself and records the commands it receives; `texts` are those of watched texts."""

    def __init__(self, live: LiveModel | None = None) -> None:
        self.live = live or LiveModel()
        if live is None:
            self.live.apply(hello())
            self.live.apply(frame(4))
        self.commands: list[ClientCommand] = []
        self.texts: list[tuple[int, ...]] = []

    def open(self, on_change: object) -> None:
        pass

    def send(self, command: ClientCommand) -> None:
        if isinstance(command, WatchTails):
            self.texts.append(command.agents)
        else:
            self.commands.append(command)

    def close(self) -> None:
        pass


def watched(words: str, text: str, now: int) -> WatchedStream:
    """Agent 0 with an answer in progress and an earlier one that was checked."""
    earlier = EarlierRequest(
        task=0, turn=0, type=words, error=None, verdict="pass in reasoning", ttft_s=0.1, tokens_out=90, decode_tps=40.0,
        e2e_s=2.3, waterfall=Waterfall(n=1, first_token_s=0.1, decode_s=2.2), preview=text,
    )  # fmt: skip
    start = now - 5_000_000_000
    spent = Waterfall(n=3, queue_s=0.1, prefill_s=0.4, recomputed_s=0.5, decode_s=0.9, tool_s=2.0, client_s=0.1)
    return WatchedStream(
        agent=0, task=7, type=words, t_sched_ns=start, t_sent_ns=start + 80_000, t_headers_ns=start + 3_000_000,
        t_first_ns=start + 120_000_000, t_last_ns=now, chunks=100, gaps_s=Spread(n=99, p50=0.049, max=0.31),
        recent_gaps_s=(0.049,) * 98 + (0.31,), reasoning=text, text=text, before=(earlier,), waterfall=spent,
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
        planned=Plan().swept,
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
        coalesced_chunks=0,
        clock_steps=0,
        levels=(),
        provisional=(
            ProvisionalLevel(c=streams, done=3, of=8, out_tps=streams * 40.0, per_stream_tps=40.0, ttft_s=0.123),
        ),
        warnings=(SessionWarning("not_on_disk", words),),
        rows=tuple(
            StreamRow(n, "writing", n, words, now - 5_000_000_000, 4, total, 0.12, span_s=total / 40)
            for n in range(streams)
        ),
        rates=tuple(StreamRate(n, 40.0, (40.0,) * 8) for n in range(streams)),
        watched=watched(words, text, now),
        telemetry=Telemetry(t_ns=now, gpus=(gpu,)),
        quality=(QualityLine(code="", name=words, state="doubtful", value=words, sentence=words),),
        tails=tuple(TextTail(n, len(text), text[-200:]) for n in range(streams)) if text else (),
    )


def ended_app(last: Frame) -> SwarmApp:
    """Return an app that shows the result of a session with this last frame."""
    source = RecordingSource(LiveModel())
    for message in (hello(), last, Ended("done", "", "/nowhere")):
        source.live.apply(message)
    return SwarmApp(source=source)


def found_server(slots: int, context: int | None = None) -> DiscoveredServer:
    flags = {"parallel": str(slots), "flash-attn": "true"}
    return DiscoveredServer(
        url="http://127.0.0.1:1", engine="llama.cpp", models=("tiny",), slots=slots, context=context, flags=flags, pid=7
    )


def model_of(seen: Frame, session: Session | None = None) -> LiveModel:
    live = LiveModel()
    live.apply(hello())
    live.session = session or live.session
    live.apply(seen)
    return live


def cells(table: Table) -> dict[str, str]:
    """Return the first row by column id."""
    return {column.id: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}
