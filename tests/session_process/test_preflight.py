"""A server whose answers make no sense is refused with a reason, before any load."""

from __future__ import annotations

import pytest

from swarmtui.model.endpoint import Secrets, parse_address
from swarmtui.session_process.preflight import Unusable, Visit
from tests.telemetry.text_server import serving


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"usage":7}', '{"usage":{"prompt_tokens":null}}', '{"usage":{"prompt_tokens":Infinity}}']
)
def test_a_server_that_does_not_count_tokens_cannot_be_calibrated(answer: str) -> None:
    with serving({"/v1/chat/completions": answer}) as server:
        visit = Visit(parse_address(server.url), Secrets(), verify=True)
        with pytest.raises(Unusable, match="prompt lengths cannot be calibrated"):
            visit.calibrate("chat", "model", "", seed=0)
        visit.close()
