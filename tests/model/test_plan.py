from __future__ import annotations

import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.plan import MAX_STREAMS, Requests, parse_levels, parse_requests, parse_seconds


def test_parse_levels() -> None:
    assert parse_levels("1,2, 4 ,8") == (1, 2, 4, 8)
    assert parse_levels("8,1") == (8, 1)
    assert parse_levels(str(MAX_STREAMS)) == (MAX_STREAMS,)


@pytest.mark.parametrize("text", ["0", "1,0", "", "1,,2", "one", "-1", "1.5", "2,2", "1;2", str(MAX_STREAMS + 1)])
def test_invalid_levels_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_levels(text)
    assert caught.value.key == "levels"


@pytest.mark.parametrize(
    ("text", "requests", "at_8"),
    [
        ("40", Requests(count=40, per_stream=False), 40),
        ("4C", Requests(count=4, per_stream=True), 32),
        (" 2c ", Requests(count=2, per_stream=True), 16),
    ],
)
def test_parse_requests(text: str, requests: Requests, at_8: int) -> None:
    assert parse_requests(text) == requests
    assert requests.at(8) == at_8
    assert parse_requests(str(requests)) == requests


@pytest.mark.parametrize("text", ["0", "0C", "C", "", "4D", "-4", "1.5C"])
def test_invalid_requests_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_requests(text)
    assert caught.value.key == "requests"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1.5h", 5400.0), (" 3 s ", 3.0)]
)
def test_parse_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text, "timeout") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1d", "s", "1 2", "inf", "nan"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_seconds(text, "timeout")
    assert caught.value.key == "timeout"
