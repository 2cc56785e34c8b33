"""Define the app's colours: blue and orange rather than green and red, always with a word or a sign."""

from __future__ import annotations

from pathlib import Path

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from swarmtui.files import make_private_directory, read_file

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

# Themes that are listed first; the others are those of Textual.
THEMES = {
    "swarm": "dark, blue and orange",
    "textual-light": "light",
    "ansi-dark": "the colours of a dark terminal",
    "ansi-light": "the colours of a light terminal",
}


def line_styles(theme: Theme) -> dict[str, Style]:
    """Map the style names used in lines to the colours of this theme."""
    variables = theme.to_color_system().generate()

    def coloured(name: str, *, bold: bool | None = None) -> Style:
        return Style(color=Color.parse(variables[name]).rich_color, bold=bold)

    def faint(share: float) -> Style:
        """Blend the foreground into the background; ANSI colours cannot be blended and are dimmed."""
        back, front = Color.parse(variables["background"]), Color.parse(variables["foreground"])
        if back.ansi is not None or front.ansi is not None:
            return Style(dim=True)
        return Style(color=front.blend(back, share).rich_color)

    return {
        "": Style(),
        "dim": faint(0.4),
        "empty": faint(0.75),
        "bold": Style(bold=True),
        "title": coloured("primary", bold=True),
        "good": coloured("success"),
        "warn": coloured("warning"),
        "bad": coloured("error", bold=True),
        "first": coloured("primary"),
        "second": coloured("secondary"),
        "cursor": coloured("warning", bold=True),
        "selected": Style(reverse=True),
    }


def kept_theme(configured: str) -> str:
    """Return the theme of config.toml; without one there, the one that was chosen last."""
    if configured != SWARM.name:
        return configured
    try:
        return read_file(_kept_path()).decode()
    except (OSError, UnicodeDecodeError):
        return configured


def keep_theme(name: str) -> None:
    """Use this theme from now on; a full disk is ignored."""
    path = _kept_path()
    try:
        make_private_directory(path.parent)
        path.write_text(name, encoding="utf-8")
    except OSError:
        pass


def _kept_path() -> Path:
    from platformdirs import user_state_dir

    return Path(user_state_dir("swarmtui")) / "theme"
