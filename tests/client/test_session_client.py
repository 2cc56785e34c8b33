"""Attach to a session that is about to end, and move a running session."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from swarmtui.client import session_client
from swarmtui.client.session_client import attach, move_session
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.worker_protocol import Unpacker, pack
from swarmtui.processes.spawn import socket_path
from swarmtui.state.session_state import SessionState

NAME = "20260101-000000-0000"


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    # The path of a socket has at most 107 characters, which that of `tmp_path` may exceed.
    with TemporaryDirectory() as runtime, socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        listener.bind(str(socket_path(NAME)))
        listener.listen()
        yield listener


def test_attach_to_a_session_that_ends_is_refused(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(command: msgspec.Struct) -> bytes:
        listening.close()
        return pack(command)

    monkeypatch.setattr(session_client, "pack", too_late)
    with pytest.raises(BadInput, match="cannot attach"):
        attach(NAME, client_protocol.Subscribe())


def test_a_last_command_arrives_although_frames_are_unread(listening: socket.socket) -> None:
    """A Unix socket that is closed with unread data resets the connection: the peer cannot read what was sent."""
    client = attach(NAME, client_protocol.Subscribe())
    joined, _ = listening.accept()
    with joined:
        joined.sendall(pack(SessionState(0).frame(0, rows=False)))
        client.send(client_protocol.Stop())
        closing = threading.Thread(target=client.close, args=(0.0,))
        closing.start()
        unpacker, bodies = Unpacker(), list[bytes]()
        while data := joined.recv(1 << 16):
            bodies += unpacker.feed(data)
    closing.join(10)
    assert client_protocol.decode_command(bodies[-1]) == client_protocol.Stop()


@pytest.mark.parametrize("warned", [False, True])
def test_move_reports_a_session_that_ends_before_it_answers(
    listening: socket.socket, tmp_path: Path, warned: bool
) -> None:
    """A warning about the disk is no refusal, even if its text names the new directory."""

    def end() -> None:
        state = SessionState(0)
        if warned:
            text = f"12 entries are not on disk: {tmp_path}/full/here: No space left on device"
            state.warnings = (client_protocol.SessionWarning("not_on_disk", text),)
        joined, _ = listening.accept()
        with joined:
            joined.sendall(pack(state.frame(0, rows=False)))
            joined.shutdown(socket.SHUT_WR)
            while joined.recv(1 << 16):
                pass

    session = threading.Thread(target=end)
    session.start()
    with pytest.raises(BadInput, match="ended before it answered"):
        move_session(NAME, tmp_path)
    session.join()
