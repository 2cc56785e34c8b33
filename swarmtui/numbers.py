"""Format numbers and times for display: a value that was not measured is a dash, never 0.

Rates are shown by `rate`, which has a steady width, as `percent` has; other figures of tables have more digits, by
`significant`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10

MISSING = "–"
_MINUS = "−"
_GIB = 1 << 30
# What is smaller is a rounding error of the computation, and shown as 0.
_SMALLEST = 1e-4


def significant(value: float | None, digits: int = 4) -> str:
    """Round to `digits` significant digits, without an exponent: 0.01234, 1.234, 1234, 123456."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    decimals = digits - 1 - int(f"{rounded:e}".partition("e")[2])
    return f"{value:.0f}" if decimals <= 0 else f"{rounded:.{decimals}f}"


def supported(value: float | None, half_width: float | None, digits: int = 4, least: int = 2) -> str:
    """Round to the digits that the half-width of a relative interval leaves: 162.3 ± 4 % is 162, 452.9 ± 3 % is 450.

    The last digit is the place of the first digit of the half-width; `least` digits are always shown.
    """
    if value and half_width:
        places = floor(log10(abs(value))) - floor(log10(half_width * abs(value)))
        digits = min(digits, max(least, places + 1))
        value = float(f"{value:.{digits}g}")
    return significant(value, digits)


def short(value: float | None, digits: int = 3) -> str:
    """Like `significant`, without trailing zeros: 0.5, 12.3, 250."""
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed(value: float, decimals: int) -> str:
    """Format with this many decimals, and more if the value would be shown as 0: 12.3, 0.4, 0.03."""
    rounded = round(value, decimals) or 0.0
    return significant(value, 1) if not rounded and abs(value) >= _SMALLEST else f"{rounded:,.{decimals}f}"


def rate(value: float | None, half_width: float | None = None) -> str:
    """Format with three digits, below 1 with two: 0.042, 0.84, 8.42, 84.2, 842, 8,420.

    The half-width of a relative interval may leave a fourth one: 8,423 ± 0.1 %. All rates of sentences and tables are
    shown by this rule, so that one figure is the same everywhere, and fits the change that is said beside it.
    """
    if value is None:
        return MISSING
    if half_width:
        text = supported(value, half_width, least=3)
        return text if "." in text else f"{int(text):,}"
    if _SMALLEST <= value < 0.1:
        return significant(value, 2)
    if value >= 1000:
        value = float(f"{value:.3g}")
    return f"{value:,.0f}" if value < _SMALLEST or value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count(value: float | None) -> str:
    return MISSING if value is None else fixed(value, 0)


def wait_s(value: float) -> float:
    """Round down a time that still grows to tenths, from one second on to seconds: it is not painted at each frame."""
    return float(floor(value)) if value >= 1.0 else floor(10.0 * value + 1e-9) / 10.0


def seconds(value: float | None, digits: int = 3) -> str:
    """Format in milliseconds below one second: 48.3 ms, 180 ms, 1.23 s."""
    if value is None:
        return MISSING
    rounded = abs(float(f"{value:.{digits}g}"))
    return f"{significant(value, digits)} s" if rounded >= 1 else milliseconds(value, digits)


def seconds_change(before: float, after: float) -> str:
    """`996 → 490 ms`, `1.85 s → 923 ms`: a unit that both have is said once."""
    first, second = seconds(before), seconds(after)
    number, _, unit = first.rpartition(" ")
    return f"{number if second.endswith(f' {unit}') else first} → {second}"


def milliseconds(value: float | None, digits: int = 3) -> str:
    """Format seconds as milliseconds, whatever their size; one digit less below 1 ms."""
    if value is None:
        return MISSING
    return f"{significant(1e3 * value, digits if abs(value) >= 1e-3 else digits - 1)} ms"


def local_time(stored: str | float, form: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time in the zone of this host; it is stored in UTC or as seconds since 1970. Empty if it is no time."""
    try:
        time = datetime.fromisoformat(stored) if isinstance(stored, str) else datetime.fromtimestamp(stored, UTC)
        return time.astimezone().strftime(form)
    except (ValueError, OverflowError):
        return ""


def clock(value: float | None) -> str:
    """Format seconds as 1:05 or 1:01:05."""
    if value is None:
        return MISSING
    total = round(value)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


def percent(share: float | None, decimals: int = 0) -> str:
    return MISSING if share is None else f"{fixed(100 * share, decimals)} %".replace("-", _MINUS)


def short_percent(share: float | None, digits: int = 3) -> str:
    return MISSING if share is None else f"{short(100 * share, digits)} %".replace("-", _MINUS)


def signed_percent(change: float | None, decimals: int = 1) -> str:
    """Format a change with its sign: +26 %, −4.1 %; one more decimal instead of 0, and none from 10 % on.

    All changes of sentences, tables and bars are shown by this rule, so that one change is the same everywhere.
    """
    if change is None:
        return MISSING
    value = abs(100 * change)
    rounded = round(value, decimals)
    decimals = 0 if rounded >= 10 else decimals + 1 if decimals and not rounded else decimals
    if not round(value, decimals):
        return "+0 %"
    return f"{_MINUS if change < 0 else '+'}{value:,.{decimals}f} %"


def factor(value: float | None) -> str:
    return MISSING if value is None else f"{significant(value, 3)}×"


def gib(size: float | None, decimals: int = 1) -> str:
    """Format bytes as GiB, without the unit."""
    return MISSING if size is None else fixed(size / _GIB, decimals)
