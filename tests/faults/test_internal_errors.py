"""An internal error of the session process: what was measured is saved, and the error log is named."""

from __future__ import annotations

import pytest

from swarmtui.sessions.index import list_sessions
from tests.cli.programs import Sandbox
from tests.cli.scripted_server import respond_with_words, scripted_server
from tests.faults.kill_checks import assert_no_processes

# Imported by every Python process; in the session process it makes a method fail once a request of a level succeeded.
FAULT = """
import sys
if "swarmtui.session_process" in sys.orig_argv:
    from swarmtui.state.quality import QualityMonitor
    real = QualityMonitor.{name}

    def {name}(self, *args):
        if self._records:
            raise ZeroDivisionError("injected")
        return real(self, *args)

    QualityMonitor.{name} = {name}
"""


@pytest.mark.parametrize("name", ["add_sample", "add_frame"])
def test_internal_error_ends_and_saves_the_run(sandbox: Sandbox, name: str) -> None:
    """`add_sample` is called by the sampling task, `add_frame` by the task that receives from workers."""
    folder = sandbox.home / "fault"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULT.format(name=name))
    env = {"PYTHONPATH": f"{folder}:{sandbox.environment['PYTHONPATH']}"}
    with scripted_server(respond_with_words(20, gap_s=0.01)) as server:
        options = ("--levels", "4", "--requests", "2000", "--warmup", "none", "--no-gpu")
        ran = sandbox.run_benchmark(server.url, *options, env=env)
    assert ran.code == 70, ran
    assert "internal error, ZeroDivisionError: injected; see " in ran.err and "Traceback" not in ran.err
    assert "injected" in sandbox.error_log()
    # A log that is left behind fails the test.
    (sandbox.runtime / "swarmtui" / "errors.log").unlink()
    assert list_sessions(sandbox.sessions)[0].state == "failed"
    assert sandbox.show_session()["levels"][0]["ok"] > 0
    assert_no_processes(sandbox)
