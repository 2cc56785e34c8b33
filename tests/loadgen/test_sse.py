"""Splitting streams into events and lines, however the bytes are divided into reads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarmtui.loadgen import sse
from swarmtui.loadgen.sse import MAX_EVENT, ErrorPayload, EventSplitter, LineSplitter, Splitter, TooLong

_LINES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"data: [DONE]",
            b"data:",
            b"data",
            b"data: ",
            b"data:  two spaces",
            b"data:no space",
            b"database: no",
            b": keep-alive",
            b":",
            b"event: message",
            b"event: error",
            b"event:error",
            b"id: 7",
            b"retry: 100",
            "data: größer, 日本語, 🐝".encode(),
        ]
    ),
    st.binary(max_size=12).map(lambda b: b"data: " + b.replace(b"\r", b"").replace(b"\n", b"")),
)
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_LF_STREAMS = st.lists(_LINES, max_size=20).map(lambda lines: b"".join(line + b"\n" for line in lines))
_STREAMS = st.lists(st.tuples(_LINES, _ENDS), max_size=20).map(lambda lines: b"".join(map(b"".join, lines)))
_BOM = b"\xef\xbb\xbf"
_STARTS = st.sampled_from([b"", _BOM, b"\xef\xbb", b"\xef"])
_TAILS = st.sampled_from([b"", b"data: last", b"\n", b"\r", b": comment"])
_CUTS = st.lists(st.integers(0, 400), max_size=30)


def _reference(stream: bytes) -> list[bytes]:
    """Parse by the standard, byte by byte; an incomplete event at the end and one of type error count too."""
    stream = stream.removeprefix(_BOM)
    lines, line, at = [], bytearray(), 0
    while at < len(stream):
        if stream[at : at + 2] == b"\r\n":
            at += 1
        if stream[at] in b"\r\n":
            lines.append(bytes(line))
            line.clear()
        else:
            line.append(stream[at])
        at += 1
    payloads, data, kind = [], [], b""
    for text in [*lines, bytes(line), b""]:
        field, _, value = text.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        if field == b"event":
            kind = value.removeprefix(b" ")
        if not text and (data or kind == b"error"):
            whole = b"\n".join(data)
            payloads.append(ErrorPayload(whole) if kind == b"error" else whole)
            data = []
        kind = kind if text else b""
    return payloads


def _pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


def _read(splitter: Splitter, pieces: list[bytes]) -> list[bytes]:
    payloads = [payload for piece in pieces for payload in splitter.feed(piece)]
    return payloads + splitter.finish()


@given(_STARTS, st.one_of(_LF_STREAMS, _STREAMS), _TAILS, _CUTS)
def test_any_split_gives_what_the_standard_requires(start: bytes, stream: bytes, tail: bytes, cuts: list[int]) -> None:
    whole = start + stream + tail
    payloads, expected = _read(EventSplitter(), _pieces(whole, cuts)), _reference(whole)
    assert payloads == expected
    assert [type(payload) for payload in payloads] == [type(payload) for payload in expected]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_single_bytes(end: bytes) -> None:
    lines = [": hi", "event: message", 'data: {"ä":', "data: 1}", "", "data:[DONE]", "", ""]
    stream = end.join(line.encode() for line in lines)
    assert _read(EventSplitter(), [bytes([byte]) for byte in stream]) == ['{"ä":\n1}'.encode(), b"[DONE]"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_event_is_returned_with_its_last_byte(end: bytes) -> None:
    splitter = EventSplitter()
    for payload in (b"one", b"two", b"three"):
        event = b"data: " + payload + end + end
        for cut in range(len(event)):
            assert splitter.feed(event[:cut]) + splitter.feed(event[cut:]) == [payload]


def test_line_endings_may_be_mixed() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\r\n\r\ndata: b\n") == [b"a"]
    assert splitter.feed(b"\n") == [b"b"]


def test_carriage_return_within_an_event_ends_its_line() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\n") == [b"a"]
    assert splitter.feed(b"data: b\rid: 7\n\n") == [b"b"]


def test_many_events_in_one_read() -> None:
    stream = b"".join(b"data: %d\n\n" % i for i in range(84))
    assert EventSplitter().feed(stream) == [b"%d" % i for i in range(84)]


def test_last_event_without_empty_line_is_returned() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b") == [b"a"]
    assert splitter.finish() == [b"b"]
    assert splitter.finish() == []


@pytest.mark.parametrize(
    "piece",
    [
        b"x" * 1024,
        b"data: " + b"x" * 1018,
        b"data: x\n" * 128,
        b"data:\n" * 170,
        b"data: x\r\n" * 114,
        b"data:\r" * 170,
    ],
    ids=["no line", "one line", "lines", "empty lines", "CRLF lines", "CR lines"],
)
def test_endless_event_is_rejected(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 64 << 10)
    splitter = EventSplitter()
    with pytest.raises(TooLong):
        for _ in range(100):
            splitter.feed(piece)


def test_long_stream_of_short_events_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 64)
    for end in (b"\n", b"\r\n"):
        splitter = EventSplitter()
        assert sum(len(splitter.feed((b"data: x" + end) * 3 + end)) for _ in range(100)) == 100


@given(
    _STARTS,
    st.lists(st.sampled_from([b'{"a":1}', b"", b" ", '{"ä":"🐝"}'.encode(), b'{"b":2}\r'])),
    _CUTS,
    st.booleans(),
)
def test_json_lines_in_any_split(start: bytes, lines: list[bytes], cuts: list[int], ended: bool) -> None:
    stream = start + b"\n".join(lines) + (b"\n" if ended else b"")
    expected = [line for line in stream.removeprefix(_BOM).split(b"\n") if line.strip()]
    assert _read(LineSplitter(), _pieces(stream, cuts)) == expected


@pytest.mark.parametrize(
    ("splitter", "start", "end"),
    [(EventSplitter(), b"", b"\n\n"), (EventSplitter(), b":\r\n", b"\r\n\r\n"), (LineSplitter(), b"", b"\n")],
    ids=["LF", "CRLF", "NDJSON"],
)
def test_large_event_in_small_reads_is_copied_once(splitter: Splitter, start: bytes, end: bytes) -> None:
    """With a copy for each read, this exceeds the time limit of tests many times over."""
    stream = start + b"data: " + b"x" * (MAX_EVENT - 100) + end
    (payload,) = _read(splitter, [stream[at : at + 16] for at in range(0, len(stream), 16)])
    assert payload.count(b"x") == MAX_EVENT - 100


def test_endless_line_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 64)
    splitter = LineSplitter()
    splitter.feed(b"x" * 64)
    with pytest.raises(TooLong):
        splitter.feed(b"x")


@given(st.lists(st.lists(st.tuples(_LINES, _ENDS), max_size=3).map(lambda lines: b"".join(map(b"".join, lines)))))
@example([b"data: a\rdata: b"])
def test_events_taken_together_are_those_of_single_reads(events: list[bytes]) -> None:
    together, single = EventSplitter(), EventSplitter()
    chunks = [event + b"\n\n" for event in events]
    for splitter in (together, single):
        splitter.feed(b"data: first\n\n")
    found = together.feed_each(chunks)
    if found is not None:
        assert found == [payload for chunk in chunks for payload in single.feed(chunk)]


def test_first_read_of_a_stream_is_not_taken_together_with_others() -> None:
    """It may begin with a byte order mark, which is removed there and nowhere else."""
    splitter = EventSplitter()
    assert splitter.feed_each([b"data: a\n\n"]) is None
    assert splitter.feed(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]
    assert splitter.feed_each([b"data: b\n\n", b"data: c\n\n"]) == [b"b", b"c"]
