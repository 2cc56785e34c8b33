"""`doctor`: each check says what is wrong with what it was shown, and the self-test measures a real worker."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from swarmtui.client import doctor
from swarmtui.client.selftest import measure_client_speed

UTF8 = {"TERM": "xterm-256color", "LANG": "en_GB.UTF-8"}


@pytest.mark.parametrize(
    ("environ", "size", "state"),
    [
        (UTF8, (120, 40), "ok"),
        ({}, None, "ok"),
        (UTF8, (60, 20), "doubtful"),
        ({**UTF8, "LANG": "C"}, (120, 40), "doubtful"),
        ({**UTF8, "TERM": "dumb"}, (120, 40), "wrong"),
        ({"LANG": "C.UTF-8"}, (120, 40), "wrong"),
    ],
)
def test_terminals(environ: dict[str, str], size: tuple[int, int] | None, state: str) -> None:
    assert doctor.check_terminal(environ, os.terminal_size(size) if size else None).state == state


def test_colours() -> None:
    assert doctor.check_colours({"COLORTERM": "truecolor"}).value == "16 million"
    assert doctor.check_colours({"TERM": "screen-256color"}).value == "256"
    assert doctor.check_colours({"TERM": "xterm", "NO_COLOR": "1", "COLORTERM": "truecolor"}).value == "off"
    assert doctor.check_colours({"TERM": "xterm"}).value == "16"


def test_open_files_against_c() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert doctor.check_open_files(1).state == "ok"
    if hard != resource.RLIM_INFINITY:
        assert doctor.check_open_files(hard).state == "wrong"


def test_a_session_directory_that_is_still_to_be_made(tmp_path: Path) -> None:
    assert doctor.check_disk(tmp_path / "a/b/c").state in ("ok", "doubtful")
    assert doctor.check_disk(tmp_path / ("x" * 300)).state == "wrong", "no name of a file can be so long"
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert doctor.check_disk(tmp_path / "locked/sessions").state == "wrong"


def test_an_endpoint_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = doctor.check_endpoint(f"http://127.0.0.1:{port}/v1")
    assert line.state == "wrong" and line.value == f"http://127.0.0.1:{port}"


def test_the_self_test_follows_real_streams() -> None:
    found = measure_client_speed()
    assert found.event_us > 0.5, "no client reads a token for less"
    assert found.streams > 0 and 0.0 <= found.shared_reads <= 1.0
