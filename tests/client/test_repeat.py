"""A saved session is repeated with its plan, and as the baseline of the new one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from swarmtui.client import request_builder
from swarmtui.client.request_builder import repeat_request
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
