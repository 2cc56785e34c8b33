"""Blue and orange rather than green and red; a word or a sign stands beside every colour anyway."""

from __future__ import annotations

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

SWARM = Theme(
    name="swarm",
    primary="#5fafff",
    secondary="#ffaf5f",
    success="#5fd7d7",
    warning="#ffd75f",
    error="#ff8787",
    foreground="#d0d0d0",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    dark=True,
)

CYCLE = ("swarm", "ansi-dark", "textual-light", "ansi-light")


def inks(theme: Theme) -> dict[str, Style]:
    """The styles that lines are made of, by name."""
    variables = theme.to_color_system().generate()

    def ink(name: str, *, bold: bool | None = None) -> Style:
        return Style(color=Color.parse(variables[name]).rich_color, bold=bold)

    def faint(share: float) -> Style:
        """Towards the background; terminals that keep their own colours have a way of their own to say it."""
        back, front = Color.parse(variables["background"]), Color.parse(variables["foreground"])
        if back.ansi is not None or front.ansi is not None:
            return Style(dim=True)
        return Style(color=front.blend(back, share).rich_color)

    return {
        "": Style(),
        "dim": faint(0.4),
        "empty": faint(0.75),
        "bold": Style(bold=True),
        "title": ink("primary", bold=True),
        "good": ink("success"),
        "warn": ink("warning"),
        "bad": ink("error", bold=True),
        "first": ink("primary"),
        "second": ink("secondary"),
        "cursor": ink("warning", bold=True),
        "chosen": Style(reverse=True),
    }
