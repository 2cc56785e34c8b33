"""`import swarmtui`: the same runs and results as the commands, in scripts, threads and event loops."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import swarmtui
from swarmtui.api import _request
from swarmtui.client.choices import RunChoices
from tests.cli.programs import ROOT, Program, Sandbox, open_sandbox, wait_until

FAST = 'server = "sim:moe-tp1?speed=20"\n'


def run_script(sandbox: Sandbox, code: str) -> list[Any]:
    """Run a script as users write it; return the JSON of each line that it prints."""
    ran = start_script(sandbox, code).wait()
    assert ran.code == 0, ran
    return [json.loads(line) for line in ran.out.splitlines()]


def start_script(sandbox: Sandbox, code: str) -> Program:
    script = sandbox.home / "script.py"
    script.write_text(code)
    return Program([sys.executable, str(script)], sandbox.environment, sandbox.home, forked=True)


@pytest.fixture
def sandbox(tmp_path: Path) -> Any:
    with open_sandbox(tmp_path) as made:
        yield made


def test_page_of_examples_runs(sandbox: Sandbox) -> None:
    page = (ROOT / "swarmtui" / "PYTHON.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    ran = start_script(sandbox, "\n".join(blocks)).wait()
    assert ran.code == 0 and not ran.err, ran
    assert "C=4: " in ran.out and "unusable " in ran.out and "levels: level 0 is not between" in ran.out
    assert not sandbox.processes("swarmtui.session_process")


def test_result_is_what_the_command_line_shows(sandbox: Sandbox) -> None:
    code = FAST + (
        "import json, msgspec, swarmtui\n"
        "result = swarmtui.run(server, levels=[1, 2], runs=2, requests=3, max_tokens=8, tags={'gpu': 'none'},\n"
        "                      label='x', complete=True, seed=5)\n"
        "print(msgspec.json.encode(result).decode())\n"
        "print(json.dumps(result.to_rows()))\n"
        "print(json.dumps(result.to_rows(runs=True)))\n"
    )
    result, rows, by_run = run_script(sandbox, code)
    assert sandbox.json("sessions", "show", "last", "--json") == result
    session = result["session"]
    assert (session["label"], session["tags"], session["plan"]["seed"]) == ("x", {"gpu": "none"}, 5)
    assert session["plan"]["load"]["levels"] == [1, 2] and session["plan"]["load"]["runs"] == 2
    assert [(row["session"], row["label"], row["c"]) for row in rows] == [(session["id"], "x", c) for c in (1, 2)]
    for row, level in zip(rows, result["levels"], strict=True):
        assert row["out_tps_steady"] == level["out_tps_steady"] and row["ttft_s.p50"] == level["ttft_s"]["p50"]
        assert not [name for name, value in row.items() if isinstance(value, dict)]
    assert [(row["c"], row["run"]) for row in by_run] == [(1, None), (1, 1), (1, 2), (2, None), (2, 1), (2, 2)]


def test_it_works_in_a_running_loop_and_in_a_thread(sandbox: Sandbox) -> None:
    code = FAST + (
        "import asyncio, json, swarmtui\n"
        "def measure():\n"
        "    return swarmtui.run(server, levels=[1], max_tokens=8, warmup=0).levels[0].ok\n"
        "async def main():\n"
        "    print(json.dumps([measure(), await asyncio.to_thread(measure)]))\n"
        "asyncio.run(main())\n"
    )
    assert run_script(sandbox, code) == [[5, 5]]


def test_error_of_the_callback_stops_the_run_and_saves_it(sandbox: Sandbox) -> None:
    code = FAST + (
        "import json, swarmtui\n"
        "seen = []\n"
        "def show(frame):\n"
        "    seen.append(frame.measured)\n"
        "    if frame.measured >= 3: raise LookupError('enough')\n"
        "try: swarmtui.run(server, levels=[1], duration=600, max_tokens=8, progress=show)\n"
        "except LookupError as error: print(json.dumps([str(error), seen.count(seen[-1]), swarmtui.load().state]))\n"
    )
    assert run_script(sandbox, code) == [["enough", 1, "stopped"]]


def test_interrupt_saves_the_run_and_is_raised(sandbox: Sandbox) -> None:
    code = FAST + (
        "import json, signal, swarmtui\n"
        "def show(frame):\n"
        "    if frame.measured: print(json.dumps('measured'), flush=True)\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "try: swarmtui.run(server, levels=[1], duration=600, max_tokens=8, progress=show)\n"
        "except KeyboardInterrupt: print(json.dumps(swarmtui.load().state))\n"
        "assert signal.getsignal(signal.SIGINT) is before\n"
    )
    program = start_script(sandbox, code)
    wait_until(lambda: "measured" in program.stdout_so_far(), "a request")
    program.signal_group(signal.SIGINT)
    ran = program.wait()
    assert ran.code == 0 and json.loads(ran.out.splitlines()[-1]) == "stopped", ran


def test_a_server_that_answers_errors_is_a_failed_run(sandbox: Sandbox) -> None:
    code = (
        "import json, swarmtui\n"
        "try: swarmtui.run('http://127.0.0.1:9', levels=[1])\n"
        "except swarmtui.RunFailed as error: print(json.dumps([error.state, str(error), error.result]))\n"
    )
    ((state, message, result),) = run_script(sandbox, code)
    assert state == "unusable" and "127.0.0.1:9" in message and result is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"levels": [0]}, "levels: level 0 is not between"),
        ({"level": [1]}, "level: no such option; did you mean levels?"),
        ({"plan": "quick"}, "plan: no such option"),
        ({"requests": 4, "duration": 3}, "duration: give requests or duration, not both"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"levels": [0], "timeout": "soon"}, "timeout"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises(swarmtui.BadInput, match=re.escape(error)):
        swarmtui.run("sim:moe-tp1", session_dir=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_values_of_python_mean_what_the_command_line_says(tmp_path: Path) -> None:
    def load(**options: Any) -> Any:
        return _request("sim:moe-tp1", "sweep", tmp_path, options).plan.load

    assert load(levels=[1, 2], duration=30).duration == "30s" and load(levels=(4,)).levels == (4,)
    assert load(precision=0.02).precision == "2%" and load(requests=8).requests in (8, "8")
    assert load(rate=[2, 4.5]).rates == (2.0, 4.5)
    built = _request("sim:moe-tp1", "sweep", tmp_path, {"headers": {"X-A": "b"}, "tags": {"k": "v=w"}, "timeout": 90})
    assert built.secrets.headers == {"X-A": "b"} and built.tags == {"k": "v=w"} and built.plan.timeouts.total == 90.0
    assert _request("sim:moe-tp1", "sweep", tmp_path, {"find_cliff": True}).plan.goal == "cliff"
    assert _request("sim:moe-tp1", "quick", tmp_path, {"budget": 20.0}).plan.budget_s == 20.0


def test_every_option_of_a_run_can_be_given() -> None:
    from swarmtui.cli.run import run

    elsewhere = {"addresses", "endpoints", "as_json", "events", "metrics_port", "quiet", "session_dir", "find_cliff"}
    decided_later = {"fail_if", "detect", "fail_unsure"}
    names = {str(param.name) for param in run.params} - elsewhere - decided_later
    assert names <= set(RunChoices.__struct_fields__)


def test_import_is_light_and_names_are_known() -> None:
    code = "import sys, swarmtui; print(*(m for m in sys.modules if m.startswith(('swarmtui', 'msgspec'))))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert sorted(ran.stdout.split()) == ["swarmtui", "swarmtui.version"]
    for name in swarmtui.__all__:
        assert getattr(swarmtui, name) is not None and name in dir(swarmtui)
    for name in ("run", "quick", "capacity", "load", "compare", "RunFailed"):
        assert getattr(swarmtui, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = swarmtui.nothing
