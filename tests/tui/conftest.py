"""Fixtures for tests of the app: separate directories, and no process that outlives its test."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from swarmtui.client import catalogue
from swarmtui.client.session_client import attach, running_sessions
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Stop, Subscribe
from tests.cli.preloaded import fork_session_processes
from tests.cli.programs import find_processes, send_signal

_STOP_S = 60.0
_UNTIL_S = 120.0

_parse_rules = Stylesheet._parse_rules
_PARSED: dict[Hashable, list[RuleSet]] = {}


def _parse_once(self: Stylesheet, css: str, read_from: Any, *more: Any, **named: Any) -> list[RuleSet]:
    """Parse the same styles with the same colours once for all apps: they do not change."""
    key = (css, read_from, more, *named.items(), frozenset(self._variables.items()))
    if key not in _PARSED:
        _PARSED[key] = _parse_rules(self, css, read_from, *more, **named)
    return _PARSED[key]


Stylesheet._parse_rules = _parse_once  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine tests: Textual's pilot is asynchronous."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def separate_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("NO_COLOR", raising=False)
    # Servers that happen to run on this host must not change what the setup screen shows.
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: ())
    monkeypatch.setattr(catalogue, "listening_sockets", frozenset)
    fork_session_processes(monkeypatch)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    # The path of a socket is limited to about 100 characters, which tmp_path may exceed.
    with TemporaryDirectory(prefix="swarm") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        try:
            yield tmp_path
        finally:
            stop_processes(runtime)


def stop_processes(runtime: str) -> None:
    """Stop the sessions that the test has left running; kill what does not stop."""
    deadline = time.monotonic() + _STOP_S
    while left := find_processes(f"XDG_RUNTIME_DIR={runtime}"):
        for session_id in running_sessions():
            with contextlib.suppress(BadInput, OSError):
                client = attach(session_id, Subscribe())
                client.send(Stop(grace_s=0.0))
                client.close()
        if time.monotonic() > deadline:
            for process in left:
                send_signal(process.pid, signal.SIGKILL)
            pytest.fail(f"still running: {[process.pid for process in left]}")
        time.sleep(0.05)


Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Wait until a condition holds; fail with its source after two minutes. To look is a small part of the time."""

    async def wait(condition: Callable[[], bool]) -> None:
        deadline, before = time.monotonic() + _UNTIL_S, time.thread_time()
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"not within {_UNTIL_S:g} s: {inspect.getsource(condition).strip()}")
            await asyncio.sleep(max(0.05, 20 * (time.thread_time() - before)))
            before = time.thread_time()

    return wait
