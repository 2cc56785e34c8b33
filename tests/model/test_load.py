"""The plan of each [load] table, and errors that name the key."""

from __future__ import annotations

import pytest

from swarmtui.model.base import BadInput
from swarmtui.model.load import make_plan
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.workload import effective_load, parse_workload, task_count

RANDOM = 'kind = "random"\nname = "r"\ninput_tokens = 5\noutput_tokens = 5\n'
MIXED = 'kind = "mixed"\nname = "m"\nprimary = { turns = ["a"] }\nside = [{ text = "b" }, { text = "c" }]\n'
DAG = 'kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x" }, { id = "b", text = "y", copies = 3 }]\n'


def plan_of(text: str, **given: object) -> Plan:
    workload = parse_workload(text, "file.toml")
    return make_plan(effective_load(workload), size=task_count(workload), **given)


def refusal(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse_workload(text, "file.toml")
    assert caught.value.source == "file.toml"
    return caught.value


def test_default_load_is_a_closed_loop() -> None:
    assert plan_of(RANDOM) == Plan(warmup=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RANDOM + '[load]\nmode = "closed"\nlevels = [2]\nrequests = 9\n', {"levels": (2,), "warmup": 2}),
        (RANDOM + '[load]\nmode = "barrier"\n', {"load": "barrier", "serial": "measured", "levels": (1, 2, 3, 4)}),
        (RANDOM + '[load]\nmode = "swarm"\nagents = 50\n', {"levels": (50,), "serial": "extrapolated", "sample": 1}),
        (RANDOM + '[load]\nmode = "swarm"\nagents = 5\nsample = 0\n', {"serial": "none"}),
        (RANDOM + '[load]\nmode = "open"\nrate = 3\nduration = "5s"\n', {"rates": (3.0,), "duration_s": 5.0}),
        (RANDOM + '[load]\nmode = "open"\nrate = [2, 4.5]\n', {"rates": (2.0, 4.5), "levels": (512,), "warmup": 1}),
        (RANDOM + '[load]\nmode = "ramp"\nto = 10\nevery = "2s"\n', {"levels": (1, 2, 4, 8, 10), "every_s": 2.0}),
        (RANDOM + '[load]\nmode = "ramp"\nto = 7\nby = "linear"\nstep = 3\n', {"levels": (1, 4, 7)}),
        (MIXED + '[load]\nmode = "mixed"\nlevels = [1, 9]\nloop = true\n', {"levels": (1, 9), "loop": True}),
        (DAG, {"load": "dag", "levels": (4,)}),
    ],
)
def test_plan_of_each_load_mode(text: str, expected: dict[str, object]) -> None:
    plan = plan_of(text)
    assert {name: getattr(plan, name) for name in expected} == expected


def test_levels_rotate_if_there_are_several_runs() -> None:
    assert not plan_of(RANDOM).rotate
    assert plan_of(RANDOM, runs=2).rotate
    assert plan_of(RANDOM + '[load]\nmode = "closed"\nruns = 3\n').rotate
    assert not plan_of(RANDOM + '[load]\nmode = "closed"\nruns = 3\nrotate = false\n').rotate
    assert plan_of(RANDOM + '[load]\nmode = "closed"\nrotate = true\n').rotate
    assert not plan_of(RANDOM + '[load]\nmode = "ramp"\nto = 4\n', runs=2).rotate


def test_options_override_the_load_table() -> None:
    text = RANDOM + '[load]\nmode = "closed"\nlevels = [2]\nruns = 3\nrequests = 9\n'
    plan = plan_of(text, levels=(1, 5), requests=Requests(count=2), runs=None)
    assert (plan.levels, plan.requests.count, plan.runs, plan.warmup) == ((1, 5), 2, 3, 5)


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
        (RANDOM + '[load]\nmode = "mixed"\n', "load.mode mixed"),
        (RANDOM + '[load]\nmode = "somehow"\n', "load.mode"),
        (MIXED + '[load]\nmode = "barrier"\n', "load.mode barrier"),
        (MIXED + '[load]\nmode = "mixed"\nlevels = [1, 4]\n', "load.levels"),
        (DAG + '[load]\nmode = "closed"\n', "load.mode closed"),
        (RANDOM + 'check = { regex = ["("] }\n', "check.regex[0]"),
        (MIXED.replace('"b" }', '"b", check = {} }'), "side[0].check"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x", after = ["a"] }]\n', "tasks.after"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x", after = ["z"] }]\n', "tasks[0].after"),
        ('kind = "dag"\nname = "d"\ntasks = [{ id = "a", text = "x" }, { id = "a", text = "y" }]\n', "tasks.id"),
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
