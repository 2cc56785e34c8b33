"""Joining a session that ends in this moment, and having one moved: the person is told what is so now."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from swarmtui.client import client
from swarmtui.client.sockets import socket_path
from swarmtui.model import client_protocol as said
from swarmtui.model.schema import BadInput
from swarmtui.model.worker_protocol import pack
from swarmtui.session_process.live_state import LiveState

NAME = "20260101-000000-0000"


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path(NAME)))
        listener.listen()
        yield listener


def test_a_conductor_that_ends_while_somebody_joins_is_no_crash(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(command: msgspec.Struct) -> bytes:
        listening.close()
        return pack(command)

    monkeypatch.setattr(client, "pack", too_late)
    with pytest.raises(BadInput, match="cannot join it"):
        client.attach(NAME, said.Subscribe())


@pytest.mark.parametrize("warned", [False, True])
def test_one_that_dies_before_it_has_moved_is_no_crash_and_no_refusal(
    listening: socket.socket, tmp_path: Path, warned: bool
) -> None:
    """A warning may name the place for another reason: its old directory lies below the one that was asked for."""

    def die() -> None:
        board = LiveState(0)
        if warned:
            text = f"12 entries are not on disk: {tmp_path}/full/here: No space left on device"
            board.warnings = (said.SessionWarning("not_on_disk", text),)
        joined, _ = listening.accept()
        with joined:
            joined.sendall(pack(board.frame(False)))
            joined.shutdown(socket.SHUT_WR)
            while joined.recv(1 << 16):
                pass

    conductor = threading.Thread(target=die)
    conductor.start()
    with pytest.raises(BadInput, match="ended before it answered"):
        client.move_session(NAME, tmp_path)
    conductor.join()
