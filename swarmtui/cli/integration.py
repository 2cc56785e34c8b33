"""The commands `skill` and `completion`: what agents and shells need to use swarmtui."""

from __future__ import annotations

import sys
from importlib.resources import files

import click
from click.shell_completion import get_completion_class

from swarmtui.cli.options import COMPLETE_VARIABLE, commands
from swarmtui.text import write_document


@commands.command()
def skill() -> None:
    """Print the page that tells a coding agent how to use swarmtui, as a SKILL.md.

    \b
    mkdir -p .claude/skills/swarmtui && swarmtui skill > .claude/skills/swarmtui/SKILL.md
    """
    write_document(sys.stdout, files("swarmtui").joinpath("SKILL.md").read_bytes())


@commands.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    bash: swarmtui completion bash > ~/.local/share/bash-completion/completions/swarmtui
    zsh:  swarmtui completion zsh > DIRECTORY/_swarmtui     (a directory of $fpath)
    fish: swarmtui completion fish > ~/.config/fish/completions/swarmtui.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    template = found(commands, {}, "swarmtui", COMPLETE_VARIABLE)
    write_document(sys.stdout, (template.source_template % template.source_vars()).encode() + b"\n")
