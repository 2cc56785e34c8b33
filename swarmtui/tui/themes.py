"""Blue and orange rather than green and red; a word or a sign stands beside every colour anyway."""

from __future__ import annotations

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
