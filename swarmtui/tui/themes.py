"""The themes of the app and the styles of its lines, from the colours of `report.colours`."""

from __future__ import annotations

from pathlib import Path

from rich.color import Color as TerminalColour
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from swarmtui.files import make_private_directory, read_file, state_directory
from swarmtui.report.colours import DARK, HUES, LIGHT, STEPS, ColourTable, Hue

# The hues in the 16 colours of a dark and of a light terminal, which have no orange.
_SIXTEEN: dict[bool, dict[Hue, str]] = {
    True: {
        "throughput": "bright_blue", "latency": "yellow", "queue": "bright_yellow", "energy": "magenta",
        "good": "cyan", "bad": "bright_red",
    },
    False: {
        "throughput": "blue", "latency": "bright_red", "queue": "yellow", "energy": "magenta", "good": "cyan",
        "bad": "red",
    },
}  # fmt: skip
# What the background has of a tint, and a tint with 256 colours; text on it stays legible.
_TINT = {True: 0.84, False: 0.89}
_TINT_256 = {True: 236, False: 254}


def _theme(name: str, palette: ColourTable, panel: str, dark: bool) -> Theme:
    hues = palette.hues
    return Theme(
        name=name,
        primary=hues["throughput"],
        secondary=hues["latency"],
        accent=hues["energy"],
        success=hues["good"],
        warning=hues["queue"],
        error=hues["bad"],
        foreground=palette.text,
        background=palette.background,
        surface=palette.surface,
        panel=panel,
        dark=dark,
    )


SWARM = _theme("swarm", DARK, "#252a33", dark=True)
SWARM_LIGHT = _theme("swarm-light", LIGHT, "#e2e4e6", dark=False)

# Themes that are listed first; the others are those of Textual.
THEMES = {
    SWARM.name: "dark",
    SWARM_LIGHT.name: "light",
    "ansi-dark": "the colours of a dark terminal",
    "ansi-light": "the colours of a light terminal",
}


class LineStyles(dict[str, Style]):
    """The styles of lines by name; `good on throughput` is made of `good` and the background `on throughput`."""

    def __missing__(self, name: str) -> Style:
        front, on, hue = name.partition(" on ")
        if not on:
            raise KeyError(name)
        return self.setdefault(name, self[front] + self[f"on {hue}"])


def line_styles(theme: Theme, colours: str | None = "truecolor") -> LineStyles:
    """Map the style names used in lines to colours; `colours` are those of the terminal, as Rich names them.

    A quantity has the same hue in every theme. Its ramp is named by hue and step, as `shade` returns it.
    """
    palette = DARK if theme.dark else LIGHT
    few = theme.ansi or colours in ("standard", "windows", None)
    own = theme.name in (SWARM.name, SWARM_LIGHT.name)
    variables = theme.to_color_system().generate()

    def faint(share: float) -> Style:
        """Blend the foreground into the background; the colours of a terminal cannot be blended and are dimmed."""
        if few:
            return Style(dim=True)
        front, back = Color.parse(variables["foreground"]), Color.parse(variables["background"])
        return Style(color=front.blend(back, share).rich_color)

    def tint(hue: Hue) -> Style:
        """Return the background of a quantity; with 256 colours a grey, with 16 none."""
        if few:
            return Style()
        if colours == "256":
            return Style(bgcolor=TerminalColour.from_ansi(_TINT_256[theme.dark]))
        front, back = Color.parse(palette.hues[hue]), Color.parse(variables["background"])
        return Style(bgcolor=front.blend(back, _TINT[theme.dark]).rich_color)

    hues = {hue: Style(color=_SIXTEEN[theme.dark][hue] if few else palette.hues[hue]) for hue in HUES}
    title = hues["throughput"] if few else Style(color=Color.parse(variables["primary"]).rich_color)
    styles = {
        "": Style(),
        **hues,
        **{f"on {hue}": tint(hue) for hue in HUES},
        **{f"bold {hue}": style + Style(bold=True) for hue, style in hues.items()},
        **{
            f"{hue}{step}": _ramp_style(hues[hue], palette, hue, step, colours, few)
            for hue in HUES
            for step in range(STEPS)
        },
        "dim": Style(color=palette.dim) if own and not few else faint(0.3),
        "frame": Style(color=palette.frame) if own and not few else faint(0.75),
        "focus": title,
        "bold": Style(bold=True),
        "title": title + Style(bold=True),
        "warn": hues["queue"],
        "bad": hues["bad"] + Style(bold=True),
        "cursor": hues["queue"] + Style(bold=True),
        "selected": Style(reverse=True),
    }
    return LineStyles(styles)


def _ramp_style(plain: Style, palette: ColourTable, hue: Hue, step: int, colours: str | None, few: bool) -> Style:
    """Return a step of a ramp; with 16 colours its lower part is dim and its end bold."""
    if few:
        return plain + Style(dim=step < STEPS // 2 or None, bold=step == STEPS - 1 or None)
    if colours == "256":
        return Style(color=TerminalColour.from_ansi(palette.ramps_256[hue][step]))
    return Style(color=palette.ramps[hue][step])


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
    return state_directory() / "theme"
