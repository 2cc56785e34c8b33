from __future__ import annotations

import pytest

from swarmtui import numbers


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("significant", 0.012344, "0.01234"),
        ("significant", 9.99999, "10.00"),
        ("significant", 123456.7, "123457"),
        ("significant", 0, "0"),
        ("short", 0.5, "0.5"),
        ("short", 250.0, "250"),
        ("rate", 8.416, "8.42"),
        ("rate", 84.16, "84.2"),
        ("rate", 8416.0, "8,420"),
        ("rate", 0.0, "0"),
        ("rate", 0.842, "0.84"),
        ("rate", 0.0416, "0.042"),
        ("rate", 0.00042, "0.00042"),
        ("rate", 1e-17, "0"),
        ("count", 12345.0, "12,345"),
        ("count", 0.4, "0.4"),
        ("seconds", 0.00042, "0.42 ms"),
        ("seconds", 0.0483, "48.3 ms"),
        ("seconds", 0.18, "180 ms"),
        ("seconds", 0.9997, "1.00 s"),
        ("seconds", 1.234, "1.23 s"),
        ("seconds", 123.4, "123 s"),
        ("milliseconds", 1.234, "1234 ms"),
        ("clock", 65.0, "1:05"),
        ("clock", 3665.0, "1:01:05"),
        ("percent", -0.041, "−4 %"),
        ("percent", 0.0034, "0.3 %"),
        ("percent", 0.0, "0 %"),
        ("percent", -1e-17, "0 %"),
        ("short_percent", 0.005, "0.5 %"),
        ("short_percent", 12.344, "1234 %"),
        ("signed_percent", 0.256, "+26 %"),
        ("signed_percent", -0.041, "−4.1 %"),
        ("signed_percent", -0.0004, "−0.04 %"),
        ("signed_percent", 0.00006, "+0.01 %"),
        ("signed_percent", -0.00004, "+0 %"),
        ("signed_percent", 0.0, "+0 %"),
        ("signed_percent", -10.0, "−1,000 %"),
        ("signed_percent", 12.3456, "+1,235 %"),
        ("factor", 12.345, "12.3×"),
        ("gib", 150_754_820_096, "140.4"),
        ("gib", 20 << 20, "0.02"),
    ],
)
def test_number_format(name: str, value: float, text: str) -> None:
    format_number = getattr(numbers, name)
    assert format_number(value) == text
    assert format_number(None) == numbers.MISSING


def test_change_without_decimals_is_rough() -> None:
    assert [numbers.signed_percent(change, 0) for change in (-0.002, 0.002, -0.02)] == ["+0 %", "+0 %", "−2 %"]


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (162.3, 0.04, "162"),
        (452.9, 0.03, "450"),
        (452.9, 0.001, "452.9"),
        (452.9, None, "452.9"),
        (452.9, 0.0, "452.9"),
        (9.871, 0.02, "9.9"),
        (3412.0, 0.5, "3400"),
        (None, 0.02, "–"),
    ],
)
def test_figures_have_the_digits_that_their_half_width_supports(
    value: float | None, half_width: float | None, text: str
) -> None:
    assert numbers.supported(value, half_width) == text


@pytest.mark.parametrize(
    ("value", "half_width", "text"),
    [
        (3601.2, 0.06, "3,600"),
        (3601.2, None, "3,600"),
        (3612.4, 0.0002, "3,612"),
        (15.32, 0.2, "15.3"),
        (84.21, 0.001, "84.21"),
        (None, 0.1, "–"),
    ],
)
def test_a_rate_has_three_digits_and_a_fourth_if_its_half_width_leaves_it(
    value: float | None, half_width: float | None, text: str
) -> None:
    assert numbers.rate(value, half_width) == text
