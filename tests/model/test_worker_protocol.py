"""Messages between session process and worker are complete, however the stream is split."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.model.plan import Timeouts
from swarmtui.model.record import Record
from swarmtui.model.worker_protocol import (
    MAX_MESSAGE,
    Ack,
    Drop,
    Enqueue,
    Failed,
    Finished,
    Returned,
    Setup,
    StartStage,
    TakeBack,
    Target,
    Unpacker,
    WatchAgent,
    decode_command,
    decode_report,
    pack,
)
from swarmtui.model.workload import Message, Task


@given(st.lists(st.text(max_size=300), max_size=12), st.lists(st.integers(0, 4000), max_size=30))
def test_messages_survive_any_split_of_the_stream(texts: list[str], cuts: list[int]) -> None:
    stream = b"".join(pack(Failed(text)) for text in texts)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    unpacker = Unpacker()
    bodies = [body for a, b in itertools.pairwise(edges) for body in unpacker.feed(stream[a:b])]
    assert [decode_report(body) for body in bodies] == [Failed(text) for text in texts]


def test_oversized_message_is_refused_by_its_header() -> None:
    with pytest.raises(ValueError, match="invalid message"):
        Unpacker().feed((MAX_MESSAGE + 1).to_bytes(4, "big"))


TASK = Task(id=1, messages=(Message(role="user", content="größer 🐝"),), followups=("and?",), extra={"top_k": 1})


@pytest.mark.parametrize(
    "command",
    [
        Setup(
            1, 2, (Target(url="http://[::1]:1", model="m", headers={"A": "b"}),), Timeouts(idle=1.5), spools=("s", "t")
        ),
        Enqueue((TASK,)),
        StartStage(3, 4, c=8, run=2, phase="warmup", cancel=True),
        TakeBack(3),
        Drop(cancel=True),
        Ack(7),
        WatchAgent(None),
    ],
    ids=lambda command: type(command).__name__,
)
def test_commands_round_trip(command: msgspec.Struct) -> None:
    (body,) = Unpacker().feed(pack(command))
    assert decode_command(body) == command


@pytest.mark.parametrize(
    "report",
    [Failed("why"), Returned((1, 2)), Finished(3, Record(task=1, chunk_us=(0, 5), left_out=("stream_options",)))],
    ids=lambda report: type(report).__name__,
)
def test_reports_round_trip(report: msgspec.Struct) -> None:
    (body,) = Unpacker().feed(pack(report))
    assert decode_report(body) == report
