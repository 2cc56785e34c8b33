"""Joining a session that ends in this moment, and having one moved: the person is told what is so now."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from swarmtui.conductor import client
from swarmtui.conductor.runtime import socket_path
from swarmtui.model import frame as said
from swarmtui.model.schema import BadInput
from swarmtui.model.wire import pack
from tests.conductor.watching import Stage, ramp

NAME = "20260101-000000-0000"


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path(NAME)))
    listener.listen()
    return listener


def test_a_conductor_that_ends_while_somebody_joins_is_no_crash(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(command: msgspec.Struct) -> bytes:
        listening.close()
        return pack(command)

    monkeypatch.setattr(client, "pack", too_late)
    with pytest.raises(BadInput, match="cannot join it"):
        client.attach(NAME, said.Subscribe())


def test_a_conductor_that_dies_while_it_is_to_move_is_no_crash(listening: socket.socket, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ended before it answered"):
        moved_by(listening, tmp_path, lambda there: None)


def test_a_warning_that_only_names_the_same_place_is_no_refusal(listening: socket.socket, tmp_path: Path) -> None:
    """As of a session that lies below the directory to which it is to be moved, on a disk that was full."""

    def warn_of_another_thing(there: socket.socket) -> None:
        full = f"12 entries are not on disk: {tmp_path}/full/{NAME}: No space left on device"
        there.sendall(pack(said.Frame(**FRAME, warnings=(full,))))

    with pytest.raises(BadInput, match="ended before it answered"):
        moved_by(listening, tmp_path, warn_of_another_thing)
