"""Random and damaged input: it is rejected with a message, and nothing crashes, hangs or exhausts memory."""

from __future__ import annotations

import json
import os
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmtui.analysis.limits.fail_if import parse_fail_if
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.client.plan_builder import parse_levels
from swarmtui.model import client_protocol, worker_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config
from swarmtui.model.endpoint import PATHS, Dialect, parse_address
from swarmtui.model.journal import entry_encoder
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.run_length import parse_requests
from swarmtui.prompts.library import builtin_workloads, parse_workload
from swarmtui.report import export
from swarmtui.sessions.importers import import_result
from swarmtui.sessions.index import list_sessions
from swarmtui.sessions.journal import JOURNAL, read_journal
from swarmtui.sessions.replay import Replay
from swarmtui.sessions.store import load_session, summarise, write_summary
from swarmtui.sim.presets import parse_spec
from swarmtui.telemetry import metrics
from swarmtui.telemetry.gpu.exporters import parse_amd, parse_dcgm
from swarmtui.text import display_width, sanitize, sanitize_lines, truncate
from swarmtui.tui.launch import read_app_config as read_config
from swarmtui.tui.setup.form import read_setup
from tests.faults.fuzz_stream import FRAGMENTS, HEAD, run_request
from tests.sessions.session_builders import full_session

# Multiplies the examples, and makes them random: SWARMTUI_FUZZ=50.
TIMES = int(os.environ.get("SWARMTUI_FUZZ", "1"))
many = settings(max_examples=80 * TIMES, derandomize=TIMES == 1)
few = settings(max_examples=25 * TIMES, derandomize=TIMES == 1)

# streams


@many
@given(
    st.sampled_from(list(PATHS)),
    st.booleans(),
    st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=40), max_size=30),
    st.integers(1, 200),
)
def test_request_ends_whatever_is_received(dialect: Dialect, headed: bool, parts: list[bytes], size: int) -> None:
    text = (HEAD if headed else b"") + b"".join(parts)
    run_request(dialect, [text[i : i + size] for i in range(0, len(text), size)])


@many
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_payload_is_an_event_or_an_error(payloads: list[bytes]) -> None:
    events = [b"data: " + payload + b"\n\n" for payload in payloads]
    run_request("chat", [HEAD, *(b"%x\r\n%s\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"])


# messages between processes

READERS: list[Callable[[bytes], Any]] = [
    client_protocol.decode_command, client_protocol.decode_message,
    worker_protocol.decode_command, worker_protocol.decode_report,
]  # fmt: skip


@many
@given(st.binary(max_size=200), st.sampled_from(READERS))
def test_invalid_message_is_rejected(body: bytes, decode: Callable[[bytes], Any]) -> None:
    try:
        decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


@many
@given(st.lists(st.binary(max_size=50), max_size=10))
def test_unpacker_returns_no_more_than_it_received(parts: list[bytes]) -> None:
    unpacker, returned = worker_protocol.Unpacker(), 0
    try:
        for part in parts:
            returned += sum(len(body) + worker_protocol.HEADER_BYTES for body in unpacker.feed(part))
    except ValueError:
        return
    assert returned <= sum(map(len, parts))


# user input

PARSERS: dict[str, Callable[[str], Any]] = {
    "levels": parse_levels,
    "requests": parse_requests,
    "seconds": lambda text: parse_seconds(text, "x"),
    "address": parse_address,
    "limit": parse_fail_if,
    "slo": parse_slo,
    "simulator": parse_spec,
    "workload": lambda text: parse_workload(text, "x"),
}
PIECES = ["1", "9" * 30, ",", "C", "ms", "s", "ttft", "_p50", ">", "<=", " or ", " and ", "(", ")", "=", "errors", "-",
          "http://", "[", "]", ":", "@", "/v1", "?", "&", "speed", "moe-tp1", "name = ", '"x"', "\n", "kind = ", "é",
          "\0",
          "__import__('os')", "NaN", "1e400", "٣"]  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
@many
@given(st.text(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_invalid_values_are_rejected_with_a_message(name: str, text: str) -> None:
    try:
        PARSERS[name](text)
    except BadInput as error:
        assert str(error)


def test_workload_with_huge_inputs_is_rejected() -> None:
    text = 'name = "x"\nkind = "random"\ninput_tokens = 1000000000000\noutput_tokens = 5\n'
    with pytest.raises(BadInput, match="input_tokens"):
        parse_workload(text, "file.toml")


SHIPPED = [Path(found.source).read_text() for found in builtin_workloads()]


@many
@given(
    st.sampled_from(SHIPPED),
    st.integers(0, 10_000),
    st.integers(0, 40),
    st.sampled_from(["", "-1", '"', "[[", "9" * 25]),
)
def test_damaged_workload_is_rejected_with_a_message(text: str, start: int, size: int, instead: str) -> None:
    start %= len(text)
    try:
        parse_workload(text[:start] + instead + text[start + size :], "file.toml")
    except BadInput as error:
        assert "file.toml" in str(error)


@many
@given(st.text(max_size=80) | st.binary(max_size=80))
def test_damaged_configuration_is_rejected_with_a_message(content: str | bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        for file in ("config.toml", "setup.json"):
            data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
            (Path(name) / file).write_bytes(data)
        for read in (read_config, lambda directory: read_setup(Config(), directory)):
            try:
                read(Path(name))
            except BadInput as error:
                assert str(error)


# sessions

ENTRIES = [entry_encoder.encode(entry) for entry in full_session()]
ODD = st.sampled_from(
    [None, True, 0, -1, 1 << 62, -(1 << 62), 0.0, -0.5, 1e308, "", "x", "\ud800", [], {}, [1], {"a": 1}]
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += _paths(part, (*path, key))
    return found


def _with_value(line: bytes, position: int, value: Any) -> bytes:
    document = json.loads(line)
    paths = _paths(document)
    *parents, last = paths[position % len(paths)]
    container = document
    for key in parents:
        container = container[key]
    container[last] = value
    return json.dumps(document).encode()


def _use_all(root: Path) -> None:
    """Do all that commands do with a session."""
    list_sessions(root)
    try:
        loaded = load_session(root, "last")
    except BadInput:
        return
    summarise(loaded)
    write_summary(loaded.directory)
    list_sessions(root)
    for form in ("md", "csv", "json", "toml", "html"):
        export([loaded], form)
    replay = Replay(loaded)
    replay.frame_at(1.0)


@few
@given(st.lists(st.tuples(st.integers(0, len(ENTRIES) - 1), st.integers(0, 500), ODD), min_size=1, max_size=4))
@example([(5, 335, -(1 << 62))])
@example([(4, 300, 1 << 62)])
@example([(11, 43, 0)])
def test_journal_with_impossible_values_is_read_or_rejected(changes: list[tuple[int, int, Any]]) -> None:
    lines = list(ENTRIES)
    for line, position, value in changes:
        lines[line] = _with_value(lines[line], position, value)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "20261115-014455-3f9a"
        directory.mkdir()
        (directory / JOURNAL).write_bytes(b"\n".join([*lines, b""]))
        _use_all(Path(name))


@few
@given(st.lists(st.sampled_from(ENTRIES) | st.binary(max_size=50), max_size=12), st.booleans())
def test_journal_with_arbitrary_lines_is_read_or_rejected(lines: list[bytes], headed: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "20261115-014455-3f9a"
        directory.mkdir()
        (directory / JOURNAL).write_bytes(b"\n".join([ENTRIES[0], *lines] if headed else lines))
        (directory / "index.json").write_bytes(lines[0] if lines else b"")
        (directory / "spool-0.jsonl").write_bytes(b"\n".join(lines[::-1]))
        _use_all(Path(name))
        try:
            read_journal(directory)
        except BadInput as error:
            assert str(error)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(
        st.sampled_from(["results", "benchmarks", "ttfts", "itls", "completed", "duration", "max_concurrency", "x"]),
        inside, max_size=4),
    max_leaves=12,
)  # fmt: skip


@many
@given(JSONS)
def test_invalid_result_of_another_tool_is_rejected_with_a_message(document: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "result.json"
        path.write_text(json.dumps(document))
        try:
            import_result(path)
        except BadInput as error:
            assert str(error)


# metrics

LINES = ["# TYPE vllm:num_requests_running gauge", "vllm:num_requests_running 1", "vllm:num_requests_running NaN",
         'vllm:time_to_first_token_seconds_bucket{le="0.1"} 3', 'x_bucket{le="oops"} 1', "{}", 'a{b="', "# HELP",
         "llamacpp:tokens_predicted_total +Inf",
         'sglang:num_running_reqs{a="b"} -1', 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1"} 1e999',
         "vllm:num_requests_running 1 1 1", 'DCGM_FI_DEV_GPU_UTIL{gpu="x"} 5', "\x00",
         "vllm:kv_cache_usage_perc 7"]  # fmt: skip


@many
@given(
    st.lists(st.sampled_from(LINES) | st.text(max_size=30), max_size=15).map("\n".join), st.sampled_from(["", "vLLM"])
)
def test_arbitrary_metrics_do_not_crash_the_parser(text: str, engine: str) -> None:
    metrics.parse_page("http://h/metrics", text, engine)
    metrics.parse_page("http://h/api/ps", text, engine)
    parse_dcgm(text)
    parse_amd(text)


# text for terminals

ESCAPES = st.sampled_from(
    ["\x1b[", "\x1b]", "\x9b", "\x1bP", "\x07", "\x1b\\", "0;", "m", "\u202e", "\x00", "\r", "\n", "é", "很"]
)


@many
@given(st.text() | st.lists(ESCAPES, max_size=30).map("".join), st.integers(1, 60))
def test_sanitized_text_is_printable_and_fits(text: str, columns: int) -> None:
    shown = sanitize(text)
    for char in shown + "".join(sanitize_lines(text)):
        assert unicodedata.category(char)[0] != "C"
    assert sanitize(shown).split() == shown.split()
    assert display_width(truncate(shown, columns)) <= columns


def test_sanitizing_many_unterminated_escapes_is_fast() -> None:
    """Once for each kind of escape sequence."""
    for begin in ("\x1b]", "\x1b[0", "\x9b;;", "\x1bP", "\x1b"):
        assert len(sanitize(begin * 100_000)) <= 300_000
