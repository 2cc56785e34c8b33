"""Numbers as people read them; not measured is a dash, never nought."""

from __future__ import annotations

NOTHING = "–"


def amount(value: float | None, digits: int = 4) -> str:
    """So many significant digits, all those before the point, and no exponent."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    places = digits - 1 - int(f"{rounded:e}".partition("e")[2])
    return f"{value:.0f}" if places <= 0 else f"{rounded:.{places}f}"


def seconds(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{amount(value, 3)} s" if abs(value) >= 1 else f"{amount(1e3 * value, 3)} ms"


def milliseconds(value: float | None) -> str:
    return NOTHING if value is None else f"{amount(1e3 * value, 3)} ms"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{amount(100 * share, 3)} %".replace("-", "−")


def times(factor: float | None) -> str:
    return NOTHING if factor is None else f"{amount(factor, 3)}×"
