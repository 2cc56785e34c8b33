"""How numbers are written. Not known is a dash, never a nought."""

from __future__ import annotations

NOTHING = "–"
_GIB = 1 << 30
_BLOCKS = " ▁▂▃▄▅▆▇█"


def rate(value: float | None) -> str:
    """Three digits at least: 8.42, 84.2, 842, 8,420; and nothing at all is 0."""
    if value is None:
        return NOTHING
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value < 1.0:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share * 100:.0f} %".replace("-", "−")


def times(factor: float | None) -> str:
    return NOTHING if factor is None else f"{factor:.2f}×"


def gib(value: float | None) -> str:
    return NOTHING if value is None else f"{value / _GIB:.1f}"


def clock(value: float | None) -> str:
    if value is None:
        return NOTHING
    total = round(value)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


def spark(values: tuple[float | None, ...], top: float | None) -> str:
    """One column a value, from 0 to `top`; a gap is a blank, and anything above nothing is seen."""
    if not top:
        return " " * len(values)
    return "".join(" " if value is None else _BLOCKS[_eighths(value, top)] for value in values)


def columns(values: tuple[float | None, ...], top: float | None, height: int) -> list[str]:
    """The same over several lines, the highest first."""
    if not top:
        return [" " * len(values)] * height
    filled = [0 if value is None else _eighths(value, top * 1.0, height) for value in values]
    lines = []
    for line in reversed(range(height)):
        floor = line * 8
        lines.append("".join(_BLOCKS[min(8, max(0, eighths - floor))] for eighths in filled))
    return lines


def bar(share: float | None, width: int) -> tuple[str, str]:
    """What is full and what is left."""
    full = 0 if share is None else round(min(1.0, max(0.0, share)) * width)
    return "█" * full, "░" * (width - full)


def _eighths(value: float, top: float, height: int = 1) -> int:
    return min(8 * height, max(1 if value > 0 else 0, round(value / top * 8 * height)))
