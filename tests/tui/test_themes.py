"""The colours of the themes: legible text, and ramps that tell little from much on every kind of terminal."""

from __future__ import annotations

from itertools import pairwise

import pytest
from rich.color import Color, ColorType
from rich.color_triplet import ColorTriplet
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Input

from swarmtui.report.colours import DARK, HUES, LIGHT, STEPS, ColourTable, shade
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.themes import SWARM, SWARM_LIGHT, line_styles

OURS = [(SWARM, DARK), (SWARM_LIGHT, LIGHT)]
TEXT = (*HUES, "dim", "warn", "title", "cursor")


def luminance(colour: ColorTriplet) -> float:
    """As WCAG 2 defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def triplet(colour: str) -> ColorTriplet:
    return Color.parse(colour).get_truecolor()


def painted(theme: Theme, name: str, colours: str = "truecolor") -> ColorTriplet:
    colour = line_styles(theme, colours)[name].color
    assert colour is not None
    return colour.get_truecolor()


@pytest.mark.parametrize(("theme", "palette"), OURS)
def test_text_is_legible_on_every_background(theme: Theme, palette: ColourTable) -> None:
    assert theme.foreground == palette.text
    for back in (palette.background, palette.surface):
        assert contrast(triplet(palette.text), triplet(back)) >= 4.5
        for name in TEXT:
            assert contrast(painted(theme, name), triplet(back)) >= 4.5, name


@pytest.mark.parametrize("colours", ["256", "truecolor"])
@pytest.mark.parametrize("theme", [SWARM, SWARM_LIGHT], ids=lambda theme: theme.name)
def test_text_is_legible_below_a_curve(theme: Theme, colours: str) -> None:
    styles = line_styles(theme, colours)
    for hue in HUES:
        for name in TEXT:
            style = styles[f"{name} on {hue}"]
            assert style.color is not None and style.bgcolor is not None
            assert contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= 4.5, (name, hue)


def test_sixteen_colours_have_no_tint_and_unknown_names_are_errors() -> None:
    styles = line_styles(SWARM, "standard")
    assert styles["good on throughput"] == styles["good"]
    with pytest.raises(KeyError):
        styles["nothing"]


@pytest.mark.parametrize("theme", [SWARM.name, SWARM_LIGHT.name])
async def test_what_an_empty_field_stands_for_is_legible(theme: str) -> None:
    app = SwarmApp()
    async with app.run_test(size=(120, 40)) as pilot:
        app.theme = theme
        await pilot.pause()
        for field in app.screen.query(Input):
            style = field.get_component_rich_style("input--placeholder")
            assert style.color is not None and style.bgcolor is not None
            assert contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) >= 4.5


@pytest.mark.parametrize("colours", ["256", "truecolor"])
@pytest.mark.parametrize(("theme", "palette"), OURS)
def test_each_step_of_a_ramp_stands_out_more_than_the_one_before(
    theme: Theme, palette: ColourTable, colours: str
) -> None:
    back = triplet(palette.background)
    for hue in HUES:
        steps = [contrast(painted(theme, f"{hue}{step}", colours), back) for step in range(STEPS)]
        assert steps[0] > 1.25 and all(low < high for low, high in pairwise(steps)), hue


@pytest.mark.parametrize("name", BUILTIN_THEMES)
def test_a_quantity_has_the_same_hue_in_every_theme_of_textual(name: str) -> None:
    theme = BUILTIN_THEMES[name]
    shown = line_styles(theme)
    if theme.ansi:
        assert {colour.type for hue in HUES if (colour := shown[hue].color)} == {ColorType.STANDARD}
        assert len({shown[hue].color for hue in HUES}) == len(HUES)
    else:
        assert shown["throughput"] == line_styles(SWARM if theme.dark else SWARM_LIGHT)["throughput"]


def test_terminals_with_16_colours_get_no_others() -> None:
    for style in line_styles(SWARM, "standard").values():
        assert style.color is None or style.color.type == ColorType.STANDARD


def test_shades_go_from_the_first_to_the_last_step() -> None:
    assert [shade("queue", share) for share in (-1, 0, 0.5, 1, 2)] == [
        f"queue{step}" for step in (0, 0, STEPS // 2, STEPS - 1, STEPS - 1)
    ]
