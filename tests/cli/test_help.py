"""--help of the commands with many options shows each of them in a group."""

from __future__ import annotations

import click
import pytest

from swarmtui.cli import search
from swarmtui.cli.run import run
from swarmtui.cli.run_options import OPTION_GROUPS


@pytest.mark.parametrize("command", [run, search.quick, search.capacity], ids=lambda command: str(command.name))
def test_every_option_is_in_a_group(command: click.Command) -> None:
    shown = command.get_help(click.Context(command))
    assert [title for title in OPTION_GROUPS if f"\n{title}:\n" in shown][:4] == [
        "Load",
        "Endpoint",
        "Measuring",
        "Output",
    ]
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert f"  {param.opts[0]}" in shown, param.opts
