"""Paint the parts of a time as one bar, with their names behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarmtui.tui.lines import Line

_SIGNS = {
    "queue": ("▒", "queue"),
    "prefill": ("█", "latency"),
    "recomputed": ("▓", "bad"),
    "first token": ("█", "latency"),
    "decode": ("▆", "throughput"),
    "tools": ("╌", "dim"),
    "client": ("░", "dim"),
    "rest": ("░", "dim"),
}
# The cells of a bar beside which the values are shown.
_LEAST_BAR = 4


def parts_line(parts: Sequence[tuple[str, float]], text: Callable[[float], str], width: int, about: str = "") -> Line:
    """Return the bar; `text` formats the values of the parts, which are left out where there is no room for them.

    `about` is the sign of an estimate.
    """
    known = [(name, value) for name, value in parts if value > 0]
    names = [(name, f"{about}{name} {text(value)}") for name, value in known]
    used = sum(len(label) + 3 for _, label in names)
    if width - used < _LEAST_BAR:
        names = [(name, f"{about}{name}") for name, _ in known]
        used = sum(len(label) + 3 for _, label in names)
    room, total = max(3, width - used - 1), sum(value for _, value in known)
    line: Line = [(" ", "")]
    for number, (name, value) in enumerate(known):
        rest = room - sum(len(label) for label, _ in line) + 1
        cells = rest if number == len(known) - 1 else max(1, round(room * value / total))
        line.append((_SIGNS[name][0] * min(rest, cells), _SIGNS[name][1]))
    for name, label in names:
        line += [(f" {_SIGNS[name][0]} ", _SIGNS[name][1]), (label, "dim")]
    return line
