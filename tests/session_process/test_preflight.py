"""A server with unusable answers is refused with a reason, before any load."""

from __future__ import annotations

import pytest

from swarmtui.http_client import HttpClient
from swarmtui.model.endpoint import parse_address
from swarmtui.session_process.preflight import EndpointProbe, EndpointUnusable
from tests.telemetry.text_server import serving


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"usage":7}', '{"usage":{"prompt_tokens":null}}', '{"usage":{"prompt_tokens":Infinity}}']
)
def test_server_without_token_counts_cannot_be_calibrated(answer: str) -> None:
    with serving({"/v1/chat/completions": answer}) as server:
        probe = EndpointProbe(parse_address(server.url), HttpClient())
        with pytest.raises(EndpointUnusable, match="prompt lengths cannot be calibrated"):
            probe.calibrate("chat", "model", "", seed=0)
