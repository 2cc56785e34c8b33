from __future__ import annotations

from typing import Any

import pytest

from swarmtui.client.choices import RunChoices
from swarmtui.client.plan_builder import build_plan, parse_levels
from swarmtui.model.base import BadInput
from swarmtui.model.load import MAX_STREAMS, Closed, Load, Open, SerialRates, Swarm
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.plan import Plan
from swarmtui.model.run_length import Requests, parse_requests
from swarmtui.prompts.library import parse_workload


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
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        (" 3 s ", 3.0),
        ("8m30s", 510.0),
        ("1h 30m", 5400.0),
    ],
)
def test_parse_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text, "timeout") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0s", "-1s", "1d", "s", "1 2", "8m30", "inf", "nan"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_seconds(text, "timeout")
    assert caught.value.key == "timeout"


RANDOM = 'kind = "random"\nname = "r"\ninput_tokens = 5\noutput_tokens = 5\n'


def load_for(text: str, **choices: Any) -> Load:
    return build_plan(parse_workload(RANDOM + text, "file.toml"), RunChoices(**choices)).load


def test_choices_override_the_load_of_the_workload() -> None:
    text = '[load]\nmode = "closed"\nlevels = [2]\nruns = 3\nrequests = 9\n'
    load = load_for(text, levels="1,5", requests="2C")
    assert load == Closed(levels=(1, 5), runs=3, requests="2C") and load.warmup_requests == 5
    assert load_for(text, plan="cliff") == Closed(levels=(1,))
    assert load_for(text, plan="capacity", slo="ttft=1s") == Closed(levels=(1,), requests=9)
    assert load_for('[load]\nmode = "swarm"\nagents = 5\n', levels="2,4") == Swarm(agents=(2, 4))


def test_requests_and_duration_replace_each_other() -> None:
    assert load_for('[load]\nmode = "closed"\nduration = "20s"\n', requests="8") == Closed(requests="8")
    assert load_for('[load]\nmode = "open"\nrate = 2\nrequests = 8\n', duration="5s") == Open(rate=2.0, duration="5s")


def test_serial_rates_replace_the_serial_run() -> None:
    load = load_for('[load]\nmode = "barrier"\n', serial_rates="85.4,13.4")
    assert load.serial_rates == SerialRates(prompt_tps=85.4, decode_tps=13.4) and load.serial_tasks == 0


def test_plan_has_what_does_not_depend_on_the_load() -> None:
    plan = build_plan(parse_workload(RANDOM, "file.toml"), RunChoices(plan="manual", max_tokens=7, max_c=9), seed=5)
    assert (plan.goal, plan.max_tokens, plan.max_c, plan.seed) == ("manual", 7, 9, 5)
    assert build_plan(parse_workload(RANDOM, "file.toml"), RunChoices()) == Plan()


def test_precision_and_complete_are_for_the_levels_of_a_closed_loop() -> None:
    closed = '[load]\nmode = "closed"\nrequests = 9\n'
    assert load_for(closed, precision="2%") == Closed(precision="2%")
    assert load_for(closed, complete=True) == Closed(requests=9, complete=True)
    assert Closed(precision="2%").run_length == "until ± 2 %, 2C–3C to 16C requests"
    for chosen in ({"requests": "5"}, {"duration": "5s"}, {"plan": "manual"}, {"rate": "4"}):
        with pytest.raises(BadInput) as refused:
            load_for(closed, precision="2%", **chosen)
        assert refused.value.key == "precision"
    with pytest.raises(BadInput, match="'50%' is not a share"):
        load_for(closed, precision="50%")
    with pytest.raises(BadInput, match="only for the levels of a closed loop"):
        load_for('[load]\nmode = "barrier"\n', complete=True)
