"""Programs that use the CPUs of the host during a session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from swarmtui.model import client_protocol
from swarmtui.model.telemetry import ProgramTimes
from tests.session_process.harness import SessionHarness, ramp


def test_a_program_that_computes_is_saved_with_the_session(harness: SessionHarness, tmp_path: Path) -> None:
    (tmp_path / "zqbusy").symlink_to(Path(sys.executable).resolve())

    def programs(frame: client_protocol.Frame) -> ProgramTimes | None:
        host = frame.telemetry.host if frame.telemetry else None
        return host.programs if host else None

    with subprocess.Popen([tmp_path / "zqbusy", "-c", "while True: pass"]) as busy:
        try:
            session_client = harness.start("sim:moe-tp1", ramp(2))
            frame = session_client.wait_for_frame(
                lambda frame: (found := programs(frame)) is not None and "zqbusy" in found.by_name
            )
        finally:
            busy.kill()
    found = programs(frame)
    assert found is not None and found.others_s >= 0.5 * found.by_name["zqbusy"]
    session_client.send(client_protocol.Stop(0.0))
    session_client.wait_for_end()
    saved = [sample.host.programs for sample in harness.journal(session_client).telemetry if sample.host is not None]
    assert any(programs is not None and "zqbusy" in programs.by_name for programs in saved)
