"""Fit to publish: every line of the checklist, with its value and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swarmtui.text import plain
from swarmtui.tui.lines import Line, left, wrapped

if TYPE_CHECKING:
    from swarmtui.model.findings import Check

_SIGNS = {"ok": ("✓ ok", "good"), "not ok": ("✖ not ok", "bad"), "unknown": ("? unknown", "dim")}
_STATE, _NAME = 11, 20


def check_lines(checks: Sequence[Check], sentence: str, width: int) -> list[Line]:
    lines: list[Line] = [[(f" {text}", "bold")] for text in wrapped(plain(sentence), width - 2)]
    lines.append([])
    room = max(20, width - _STATE - _NAME - 3)
    for check in checks:
        sign, mood = _SIGNS[check.state]
        told = wrapped(plain(f"{check.value}  (limit: {check.limit})"), room)
        why = wrapped(plain(check.sentence), room)
        lines.append([(f" {left(sign, _STATE)}", mood), (left(check.name, _NAME), "bold"), (told[0], "")])
        lines += [[(" " * (_STATE + _NAME + 1), ""), (more, "")] for more in told[1:]]
        lines += [[(" " * (_STATE + _NAME + 1), ""), (more, "dim")] for more in why]
    return lines
