"""An app of one's own: nothing of the person who runs the tests is read or written."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from swarmtui.client.client import attach, running
from swarmtui.model.client_protocol import Stop, Subscribe
from swarmtui.model.schema import BadInput

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Textual's pilot is asynchronous, and so are tests with it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("NO_COLOR", raising=False)
    # The path of a socket has about a hundred characters, and that of a test can have more.
    with TemporaryDirectory(prefix="swarm") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield tmp_path
        end_all(runtime)


def end_all(runtime: str) -> None:
    """Runs outlive the app, and the test that started them: no process of theirs may outlive it too."""
    give_up = time.monotonic() + 20
    while left := processes_of(runtime):
        for identity in running():
            with contextlib.suppress(BadInput, OSError):
                client = attach(identity, Subscribe())
                client.say(Stop(grace_s=0.0))
                client.close()
        if time.monotonic() > give_up:
            for process in left:
                process.kill()
            pytest.fail(f"still there: {[process.pid for process in left]}")
        time.sleep(0.05)


def processes_of(runtime: str) -> list[psutil.Process]:
    """Those that were started by the test, known by the directory of their sockets."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ended = process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE
            if not ended and process.environ().get("XDG_RUNTIME_DIR") == runtime:
                found.append(process)
    return found


Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Waits until something is so; a test that waits in vain fails by name."""

    async def wait(so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not so():
                await asyncio.sleep(0.05)

    return wait
