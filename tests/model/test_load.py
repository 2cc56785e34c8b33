"""The load of each [load] table, its traits, and errors that name the key."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.load import Closed, Load, Open, Ramp, traits
from swarmtui.model.plan import Plan
from swarmtui.model.run_length import parse_requests
from swarmtui.model.workload import effective_load
from swarmtui.prompts.library import parse_workload
from tests.model.loads import LOADS

RANDOM = 'kind = "random"\nname = "r"\ninput_tokens = 5\noutput_tokens = 5\n'
MIXED = 'kind = "mixed"\nname = "m"\nprimary = { turns = ["a"] }\nside = [{ text = "b" }, { text = "c" }]\n'
TRACE = 'kind = "trace"\nname = "t"\nfiles = "t.jsonl"\n'
DAG = 'kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x" }, { id = "b", text = "y", copies = 3 }]\n'


def load_of(text: str) -> Load:
    return effective_load(parse_workload(text, "file.toml"))


def refusal(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_workload(text, "file.toml")
    assert caught.value.source == "file.toml"
    return caught.value


def test_default_load_is_a_closed_loop() -> None:
    assert load_of(RANDOM) == Closed() and load_of(RANDOM).warmup_requests == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RANDOM + '[load]\nmode = "closed"\nlevels = [2]\nrequests = 9\n', {"levels": (2,), "warmup_requests": 2}),
        (RANDOM + '[load]\nmode = "barrier"\n', {"name": "barrier", "serial_tasks": None, "levels": (1, 2, 3, 4)}),
        (RANDOM + '[load]\nmode = "barrier"\nserial = "none"\n', {"serial_tasks": 0}),
        (RANDOM + '[load]\nmode = "swarm"\nagents = 50\n', {"levels": (50,), "serial_tasks": 1}),
        (RANDOM + '[load]\nmode = "swarm"\nagents = [2, 4]\nsample = 0\n', {"levels": (2, 4), "serial_tasks": 0}),
        (RANDOM + '[load]\nmode = "open"\nrate = 3\nduration = "5s"\n', {"rates": (3.0,), "duration_s": 5.0}),
        (
            RANDOM + '[load]\nmode = "open"\nrate = [2, 4.5]\n',
            {"rates": (2.0, 4.5), "levels": (512,), "warmup_requests": 1, "per_run": parse_requests("100")},
        ),
        (RANDOM + '[load]\nmode = "ramp"\nto = 10\nevery = "2s"\n', {"levels": (1, 2, 4, 8, 10), "every_s": 2.0}),
        (RANDOM + '[load]\nmode = "ramp"\nto = 7\nby = "linear"\nstep = 3\n', {"levels": (1, 4, 7)}),
        (MIXED + '[load]\nmode = "mixed"\nlevels = [1, 9]\nloop = true\n', {"levels": (1, 9), "loop": True}),
        (DAG, {"name": "dag", "levels": (4,)}),
        (DAG + '[load]\nmode = "dag"\nruns = 2\n', {"runs": 2, "levels": (4,)}),
        (TRACE, {"session_limit": parse_requests("2C"), "max_gap_s": 10.0, "run_length": "2C sessions"}),
        (TRACE + '[load]\nmode = "sessions"\nsessions = "all"\n', {"session_limit": "all"}),
        (TRACE + '[load]\nmode = "sessions"\nduration = "9s"\n', {"session_limit": None, "run_length": "9 s"}),
    ],
)
def test_each_load_mode(text: str, expected: dict[str, object]) -> None:
    load = load_of(text)
    assert {name: getattr(load, name) for name in expected} == expected


TRAITS = {
    "holds_c": {"closed", "ramp"},
    "scheduled": {"open", "sessions"},
    "by_rate": {"open"},
    "continuous": {"ramp"},
    "batch": {"barrier", "swarm"},
    "replayed": {"sessions"},
    "fixed": {"mixed", "dag"},
    "primary": {"mixed"},
    "by_type": {"dag"},
    "prompt_heavy": {"swarm"},
}


def test_every_load_mode_is_tested() -> None:
    assert [type(load) for load in LOADS] == list(get_args(Load))


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_load_is_described(load: Load) -> None:
    texts = [load.describe(load.title), load.describe(load.sentence)]
    assert all(texts) and "{" not in "".join(texts)


@pytest.mark.parametrize("trait", TRAITS)
def test_traits_of_the_load_modes(trait: str) -> None:
    assert {load.name for load in LOADS if getattr(load, trait)} == TRAITS[trait]
    for load in LOADS:
        assert getattr(traits(load.name), trait) == getattr(load, trait)


def test_unknown_load_mode_has_no_traits() -> None:
    assert not any(getattr(traits("of a newer version"), trait) for trait in TRAITS)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_load_survives_encoding_as_part_of_a_plan(load: Load) -> None:
    plan = Plan(load=load)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_load_under_manual_control_is_a_closed_loop_or_plays_sessions(load: Load) -> None:
    steered = load.steered()
    assert steered.has("levels") and (steered.holds_c or steered.replayed) and not steered.continuous
    assert (steered.runs, steered.rotates) == (load.runs, load.rotates)


def test_manual_control_of_an_open_loop_keeps_its_limit() -> None:
    assert Open(rate=2.0, requests=30).steered().per_run == parse_requests("30")
    assert Open(rate=2.0, duration="5s").steered().duration_s == 5.0


def test_levels_rotate_if_there_are_several_runs() -> None:
    assert not Closed().rotates
    assert Closed(runs=3).rotates
    assert not Closed(runs=3, rotate=False).rotates
    assert Closed(rotate=True).rotates
    assert not Ramp(to=4, runs=2).rotates


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (RANDOM + '[load]\nmode = "closed"\nlevels = [1, "two"]\n', "load.levels[1]"),
        (RANDOM + '[load]\nmode = "closed"\nlevels = [1.5]\n', "load.levels[0]"),
        (RANDOM + '[load]\nmode = "closed"\nlevels = []\n', "load.levels"),
        (RANDOM + '[load]\nmode = "closed"\nlevels = [2, 2]\n', "load.levels"),
        (RANDOM + '[load]\nmode = "closed"\nrequests = "many"\n', "load.requests"),
        (RANDOM + '[load]\nmode = "closed"\nduration = "soon"\n', "load.duration"),
        (RANDOM + '[load]\nmode = "barrier"\nspeed = 3\n', "load.speed"),
        (RANDOM + '[load]\nmode = "swarm"\n', "load"),
        (RANDOM + '[load]\nmode = "open"\nrate = 0\n', "load.rate"),
        (RANDOM + '[load]\nmode = "open"\nrate = []\n', "load.rate"),
        (RANDOM + '[load]\nmode = "open"\nrate = [1, 0]\n', "load.rate[1]"),
        (RANDOM + '[load]\nmode = "open"\nrate = [2, 2]\n', "load.rate"),
        (RANDOM + '[load]\nmode = "open"\nrate = 1\nrequests = 2\nduration = "2s"\n', "load.duration"),
        (RANDOM + '[load]\nmode = "ramp"\nstart = 9\nto = 2\n', "load.to"),
        (RANDOM + '[load]\nmode = "closed"\ncanaries = "50%"\n', "load.canaries"),
        (TRACE + '[load]\nmode = "sessions"\nmax_gap = "soon"\n', "load.max_gap"),
        (TRACE + '[load]\nmode = "sessions"\nsessions = "some"\n', "load.sessions"),
        (TRACE + '[load]\nmode = "sessions"\nrules = "agentx"\nmax_gap = "3s"\n', "load.max_gap"),
        (RANDOM + '[load]\nmode = "sessions"\n', "load.mode sessions"),
        (RANDOM + '[load]\nmode = "mixed"\n', "load.mode mixed"),
        (RANDOM + '[load]\nmode = "somehow"\n', "load.mode"),
        (MIXED + '[load]\nmode = "barrier"\n', "load.mode barrier"),
        (MIXED + '[load]\nmode = "mixed"\nlevels = [1, 4]\n', "load.levels"),
        (DAG + '[load]\nmode = "closed"\n', "load.mode closed"),
        (RANDOM + 'check = { regex = ["("] }\n', "check.regex[0]"),
        (MIXED.replace('"b" }', '"b", check = {} }'), "side[0].check"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x", after = ["a"] }]\n', "tasks.after"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x", after = ["z"] }]\n', "tasks[0].after"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x" }, { id = "a", text = "y" }]\n', "tasks[1].id"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "{b}" }, { id = "b", text = "y" }]\n', "tasks[0].text"),
    ],
)
def test_bad_load_is_refused_with_its_key(text: str, key: str) -> None:
    assert refusal(text).key == key


def test_cyclic_dependency_is_shown() -> None:
    problem = refusal(
        'kind = "dag"\nname = "d"\n'
        'tasks = [{ id = "a", text = "x", after = ["b"] }, { id = "b", text = "x", after = ["a"] }]\n'
    )
    assert problem.problem == "tasks depend on each other: a → b → a"
