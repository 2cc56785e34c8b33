"""Knobs that need no restart: configurations that differ only in them share one start of a server."""

from __future__ import annotations

from itertools import groupby

import pytest

from swarmtui.experiments.effects import summarise_tune
from swarmtui.experiments.grid import (
    all_configurations,
    has_one_server,
    launch_command,
    pending_configurations,
    round_title,
    server_flags,
    tune_digest,
    tune_rounds,
)
from swarmtui.experiments.runner import add_prefill
from swarmtui.experiments.store import without_secrets
from swarmtui.model.base import BadInput
from swarmtui.model.tuning import Flags, LiveKnob, Start, TuneFile, configuration_key, format_flags, parse_tune
from swarmtui.report.tuning import commands_text
from tests.experiments.tune_builders import done

HEAD = 'command = "serve --port {port}"\n'
LIMITS = LiveKnob(kind="power", watts=(700, 350, 280))
POWER = TuneFile(command="serve --port {port}", knob=(LIMITS,))
BOTH = TuneFile(command="serve --port {port}", grid={"--slots": (1, 2)}, knob=(LIMITS,), finalists=2)


def limit(watts: int) -> Flags:
    return {"power_w": watts}


def test_without_other_flags_each_limit_is_measured_in_every_pass_of_one_server() -> None:
    assert all_configurations(POWER) == (limit(700), limit(350), limit(280))
    assert has_one_server(POWER) and not has_one_server(BOTH)
    assert [round_.configurations for round_ in tune_rounds(POWER)] == [3, 3, 3]
    assert round_title(POWER, 1) == "pass 2 of 3"


def test_limits_follow_each_other_for_each_server() -> None:
    _, order = pending_configurations(BOTH, ())
    assert len(order) == 6
    servers = [key for key, _ in groupby(order, lambda flags: configuration_key(server_flags(BOTH, flags)))]
    assert len(servers) == 2


def test_server_is_started_without_what_is_changed_while_it_runs() -> None:
    launch = launch_command(BOTH, {"--slots": 2, "power_w": 280}, 8000)
    assert launch.command == ("serve", "--port", "8000", "--slots", "2")


def test_limits_can_be_added_without_repeating_what_is_finished() -> None:
    more = TuneFile(command=POWER.command, knob=(LiveKnob(kind="power", watts=(700, 600)),))
    assert tune_digest(more) == tune_digest(POWER)
    other = TuneFile(command=POWER.command, knob=(LiveKnob(kind="power", watts=(700,), gpus=(1,)),))
    assert tune_digest(other) != tune_digest(POWER)


def test_limit_is_written_with_its_unit() -> None:
    assert format_flags({"--slots": 2, "power_w": 280}) == "--slots 2 power 280 W"


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ('kind = "power"', "knob[0].watts: is missing"),
        ('kind = "power"\nwatts = [300, 300]', "knob[0].watts: duplicate value"),
        ('kind = "power"\nwatts = [300]\napply = "x"', "knob[0].apply: is not for a knob of kind power"),
        ('name = "clock"\nvalues = [1]', "knob[0].apply: is missing"),
        ('name = "clock"\napply = "x {value}"', "knob[0].values: is missing"),
        ('name = "clock"\nvalues = [1, 1]\napply = "x {value}"', "knob[0].values: duplicate value"),
        ('name = "clock"\nvalues = [1]\napply = "x"', "knob[0].apply: does not contain {value}"),
        ('name = "clock"\nvalues = [1]\napply = "x"\nwatts = [1]', "knob[0].watts: is not for a knob of kind command"),
        ('name = "--slots"\nvalues = [1]\napply = "x {value}"', "knob[0]: --slots is named twice"),
        ('name = "clock"\nvalues = [1]\napply = "x {value}"\nwithin = "soon"', "knob[0].within"),
        ('kind = "power"\nwatts = [300]\nunknown = 1', "unknown"),
    ],
)
def test_mistake_in_a_knob_is_named(knob: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_tune(f'{HEAD}[grid]\n"--slots" = [1, 2]\n[[knob]]\n{knob}\n', "tune.toml")
    assert message in str(raised.value)


def test_knob_alone_is_enough() -> None:
    assert parse_tune(f'{HEAD}[[knob]]\nkind = "power"\nwatts = [700, 350]\n', "tune.toml").knob[0].watts == (700, 350)


def test_commands_name_limits_and_every_command_of_the_user() -> None:
    clock = LiveKnob(name="clock", values=(1, 2), apply="set-clock {value} {port}", restore="reset-clock")
    text = commands_text(TuneFile(command="serve --port {port}", knob=(LIMITS, clock)))
    assert text.count("serve --port PORT") == 1
    assert "the power limit of the GPUs of the server is set to 700 W, 350 W, 280 W; it is restored" in text
    assert "  set-clock 1 PORT\n  set-clock 2 PORT\nto restore it:\n  reset-clock\n" in text
    assert "started once, and each configuration is measured 3 times" in text
    assert "it is not restored" in commands_text(
        TuneFile(command="serve {port}", knob=(LiveKnob(name="a", values=(1,), apply="b {value}"),))
    )


def test_keys_in_commands_of_the_user_are_not_stored() -> None:
    knob = LiveKnob(name="a", values=(1,), apply="set --api-key hunter2 {value}", restore="TOKEN=hunter2 reset")
    assert "hunter2" not in str(without_secrets(TuneFile(command="serve {port}", knob=(knob,))))


def passes(*changes: tuple[float, float]) -> list[Start]:
    """A pass for each pair of factors, by which 280 W changes tok/s and J/token."""
    found = []
    for number, (tps, energy) in enumerate(changes):
        found += [
            done(limit(700), 100.0, number, j_per_token=2.0),
            done(limit(280), 100.0 * tps, number, j_per_token=2.0 * energy),
        ]
    return found


def test_sentence_names_what_a_limit_costs_and_saves_with_both_intervals() -> None:
    found = summarise_tune(POWER, passes((0.99, 0.80), (0.988, 0.802), (0.989, 0.799)))
    assert found.power_sentence.startswith("280 W costs 1.1 % of tok/s (")
    assert "and saves 20 % of the energy per token (" in found.power_sentence
    assert found.power_sentence.endswith("compared with 700 W")


def test_interrupted_pass_and_one_without_energy_are_left_out() -> None:
    complete = passes((0.99, 0.80), (0.988, 0.802), (0.989, 0.799))
    more = [*complete, done(limit(700), 90.0, 3, j_per_token=2.0)]
    assert summarise_tune(POWER, more).power == summarise_tune(POWER, complete).power
    assert summarise_tune(POWER, [done(limit(700), 90.0), done(limit(280), 90.0)]).power == ()


def test_energy_of_prompts_needs_a_second_run() -> None:
    start = Start(j_per_token=2.0, c=4)
    assert add_prefill(start, None, None) == start
