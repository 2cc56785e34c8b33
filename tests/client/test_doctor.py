"""Checks of `swarmtui doctor`, and its self-test with a real worker."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from swarmtui.client import doctor
from swarmtui.model.config import EndpointConfig
from swarmtui.model.telemetry import HostLoad
from swarmtui.telemetry.host import HostReader

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
def test_terminal_size_term_and_locale_are_checked(
    environ: dict[str, str], size: tuple[int, int] | None, state: str
) -> None:
    assert doctor.check_terminal(environ, os.terminal_size(size) if size else None).state == state


def test_number_of_colours_is_read_from_the_environment() -> None:
    assert doctor.check_colours({"COLORTERM": "truecolor"}).value == "16 million"
    assert doctor.check_colours({"TERM": "screen-256color"}).value == "256"
    assert doctor.check_colours({"TERM": "xterm", "NO_COLOR": "1", "COLORTERM": "truecolor"}).value == "off"
    assert doctor.check_colours({"TERM": "xterm"}).value == "16"


def test_open_file_limit_must_allow_c_streams() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert doctor.check_open_files(1).state == "ok"
    if hard != resource.RLIM_INFINITY:
        assert doctor.check_open_files(hard).state == "wrong"


@pytest.mark.parametrize(("waiting_us", "state"), [(50_000, "ok"), (900_000, "doubtful")])
def test_a_busy_host_is_doubtful(waiting_us: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter((HostLoad(t_ns=0, pressure_us=0), HostLoad(t_ns=1_000_000_000, pressure_us=waiting_us)))
    monkeypatch.setattr(HostReader, "read", lambda *args, **keys: next(readings))
    monkeypatch.setattr(doctor, "_HOST_S", 0.0)
    found = doctor.check_host()
    assert found.state == state
    assert found.value.startswith(f"tasks waited for a CPU in {waiting_us // 10000} % of the time, load ")


def test_disk_check_accepts_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert doctor.check_disk(tmp_path / "a/b/c").state in ("ok", "doubtful")
    assert doctor.check_disk(tmp_path / ("x" * 300)).state == "wrong", "longer than a file name can be"
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert doctor.check_disk(tmp_path / "locked/sessions").state == "wrong"


def test_endpoint_without_a_server_is_wrong() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = doctor.check_endpoint(EndpointConfig(url=f"http://127.0.0.1:{port}/v1"))
    assert line.state == "wrong" and line.value == f"http://127.0.0.1:{port}"
