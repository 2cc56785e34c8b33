"""A saved session is repeated with its plan, and as the baseline of the new one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from swarmtui.client import request_builder
from swarmtui.client.request_builder import repeat_request
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config
from swarmtui.prompts.library import find_workload, workload_digest
from swarmtui.sessions.store import load_session, summarise

DIGEST = workload_digest(find_workload("coding"))
RECORDED = Path(__file__).parent.parent / "tui" / "recorded"


def test_label_and_typed_flags_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may have been restarted with others since."""
    monkeypatch.setattr(request_builder, "is_listening", lambda url: True)
    saved = summarise(load_session(RECORDED, "last"))
    coding = msgspec.structs.replace(
        saved.session, label="four slots", server_flags="--max-num-seqs 4", workload="coding", workload_digest=DIGEST
    )
    request = repeat_request(msgspec.structs.replace(saved, session=coding), Config(), RECORDED)
    assert (request.label, request.server_flags) == ("", "")
    assert request.previous == saved.session.id and request.plan == saved.session.plan


def test_the_workload_of_a_file_is_repeated_while_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_builder, "is_listening", lambda url: True)
    path = tmp_path / "mine.toml"
    path.write_text('kind = "prompts"\nname = "mine"\n[[prompts]]\ntext = "Hello"\n')
    saved = summarise(load_session(RECORDED, "last"))
    session = msgspec.structs.replace(
        saved.session,
        workload="mine",
        workload_digest=workload_digest(find_workload(str(path))),
        workload_file=str(path),
    )
    saved = msgspec.structs.replace(saved, session=session)
    assert repeat_request(saved, Config(), RECORDED).workload == str(path.resolve())
    path.unlink()
    with pytest.raises(BadInput, match="workload mine is a file elsewhere: choose it on the setup screen"):
        repeat_request(saved, Config(), RECORDED)
