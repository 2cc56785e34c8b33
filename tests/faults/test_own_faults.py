"""A fault of our own, made up: what was measured by then is saved, and people are told where it is written."""

from __future__ import annotations

import pytest

from tests.cli.programs import Sandbox
from tests.cli.scripted_server import respond_with_words, scripted_server
from tests.faults.test_kill import assert_no_processes

# Imported by every Python that is started with it; in the conductor a method fails after a while.
FAULT = """
import sys
if "swarmtui.session_process" in sys.orig_argv:
    from swarmtui.session_process.quality_monitor import QualityMonitor
    real, calls = QualityMonitor.{name}, []

    def {name}(self, *given):
        calls.append(1)
        if len(calls) > 8:
            raise ZeroDivisionError("made up")
        return real(self, *given)

    QualityMonitor.{name} = {name}
"""


@pytest.mark.parametrize("name", ["add_sample", "add_frame"])
def test_a_fault_beside_the_run_ends_and_saves_it(sandbox: Sandbox, name: str) -> None:
    """`add_sample` is called by the sampling task, `add_frame` by the task that receives from workers."""
    folder = sandbox.home / "fault"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULT.format(name=name))
    env = {"PYTHONPATH": f"{folder}:{sandbox.environment['PYTHONPATH']}"}
    with scripted_server(respond_with_words(20, gap_s=0.01)) as server:
        options = ("--levels", "4", "--requests", "2000", "--warmup", "none", "--no-gpu")
        ran = sandbox.run_benchmark(server.url, *options, env=env)
    assert ran.code == 2, ran
    assert "internal error, ZeroDivisionError: made up; see " in ran.err and "Traceback" not in ran.err
    assert "made up" in sandbox.error_log()
    # This one was meant; any other test fails for it.
    (sandbox.runtime / "swarmtui" / "errors.log").unlink()
    assert sandbox.list_sessions()[0]["state"] == "failed"
    assert sandbox.show_session()["levels"][0]["ok"] > 0
    assert_no_processes(sandbox)
