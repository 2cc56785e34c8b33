"""A fault of our own, made up: what was measured by then is saved, and people are told where it is written."""

from __future__ import annotations

import pytest

from tests.cli.programs import Place
from tests.cli.scripted import scripted, words
from tests.faults.test_kill import nobody_left

# Imported by every Python that is started with it; in the conductor a method fails after a while.
FAULT = """
import sys
if "swarmtui.session_process" in sys.orig_argv:
    from swarmtui.session_process.quality_monitor import Doubts
    real, calls = Doubts.{name}, []

    def {name}(self, *given):
        calls.append(1)
        if len(calls) > 8:
            raise ZeroDivisionError("made up")
        return real(self, *given)

    Doubts.{name} = {name}
"""


@pytest.mark.parametrize("name", ["look", "hear"])
def test_a_fault_beside_the_run_ends_and_saves_it(place: Place, name: str) -> None:
    """`look` is called by what watches the machine, `hear` by what listens to workers."""
    folder = place.home / "fault"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULT.format(name=name))
    env = {"PYTHONPATH": f"{folder}:{place.environment['PYTHONPATH']}"}
    with scripted(words(20, gap_s=0.01)) as server:
        options = ("--levels", "4", "--requests", "2000", "--warmup", "none", "--no-gpu")
        ran = place.measure(server.url, *options, env=env)
    assert ran.code == 2, ran
    assert "a fault of swarmtui, ZeroDivisionError: made up; see " in ran.err and "Traceback" not in ran.err
    assert "made up" in place.complaints()
    # This one was meant; any other test fails for it.
    (place.runtime / "swarmtui" / "errors.log").unlink()
    assert place.listed()[0]["state"] == "failed"
    assert place.shown()["levels"][0]["ok"] > 0
    nobody_left(place)
