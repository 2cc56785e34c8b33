"""The page for coding agents: its examples run as they are written, and its codes exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from swarmtui.model.events import EventWord
from tests.cli.programs import ROOT, Sandbox, open_sandbox
from tests.cli.test_events_option import read_events

PAGE = (ROOT / "swarmtui" / "SKILL.md").read_text()


def examples() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_examples_run_in_their_order(tmp_path: Path) -> None:
    lines = examples()
    assert len(lines) >= 8
    with open_sandbox(tmp_path) as sandbox:
        for line in lines:
            program, *words = shlex.split(line, comments=True)
            assert program == "swarmtui"
            ran = sandbox.run(*words)
            assert ran.code == 0, (line, ran)
            if "--events" in line:
                events = read_events(ran)
                assert events[0]["simulated"], "no example sends load to a server"
                assert ("--baseline" in line) == any(event.get("about") == "baseline" for event in events)
            else:
                json.loads(ran.out)


def test_no_example_names_a_server() -> None:
    measuring = [line for line in examples() if re.match(r"swarmtui (run|quick|capacity|ab|tune|probe)\b", line)]
    assert measuring and all("'sim:" in line and "://" not in line for line in measuring)


def test_every_word_of_a_verdict_is_explained() -> None:
    table = PAGE.partition("## What a verdict allows you to say")[2]
    explained = set(re.findall(r"`([a-z ]+)`", table))
    assert set(get_args(EventWord)) <= explained


@pytest.mark.parametrize("event", ["session", "level", "verdict", "warning", "answer", "end"])
def test_every_event_is_named(event: str) -> None:
    assert f"`{event}`" in PAGE


def test_command_prints_the_page(sandbox: Sandbox) -> None:
    ran = sandbox.run("skill")
    assert ran.code == 0 and ran.out == PAGE
    head = PAGE.split("---\n")[1]
    assert re.fullmatch(r"name: swarmtui\ndescription: .{80,}\n", head)
