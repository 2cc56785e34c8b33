"""What can be chosen before a run, by keys alone; and that the app asks of a server what the command line would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from swarmtui.cli.run import run
from swarmtui.cli.words import make_order as order_of_words
from swarmtui.client import catalogue
from swarmtui.model.config import Config, Defaults, Known
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.config import Last, first_choices, read_last, write_last
from swarmtui.tui.setup.choice import Choice, Kind, make_order
from swarmtui.tui.setup.view import in_columns, plan_words, task_words
from tests.cli.scripted import Answering, scripted
from tests.tui.conftest import Until
from tests.tui.screen_text import screen_text
from tests.tui.test_whole_loop import start_run

SIM = "sim:gpt-oss-20b-5slot?speed=20"
OPEN = """
kind = "random"
name = "mine"
input_tokens = 20
output_tokens = 10
[load]
mode = "open"
rate = [10, 20]
requests = 12
"""


def by_words(workload: str, **said: object) -> Plan:
    """The plan of `swarmtui run`, with the same seed whatever it was."""
    given = run.make_context("run", []).params | {"workload": workload} | said
    plan: Plan = order_of_words((SIM,), given).plan
    return msgspec.structs.replace(plan, seed=0)


def by_choice(workload: str, plan: Kind, **said: Any) -> Plan:
    order = make_order(Choice(endpoint=SIM, model="", workload=workload, plan=plan, **said), Path("/nowhere"))
    return msgspec.structs.replace(order.plan, seed=0)


@pytest.mark.parametrize("workload", [task.name for task in catalogue.tasks()])
def test_a_workload_is_asked_as_the_command_line_would(workload: str) -> None:
    assert by_choice(workload, "sweep") == by_words(workload)
    assert by_choice(workload, "sweep", warmup="3") == by_words(workload, warmup="3")


def test_what_is_typed_goes_before_the_workload_as_an_option_does() -> None:
    typed = {"levels": "1,3", "runs": "2", "requests": "5"}
    assert by_choice("coding", "sweep", **typed) == by_words("coding", levels="1,3", runs=2, requests="5")
    assert by_choice("s0-swarm-coding", "sweep", levels="2,4") == by_words("s0-swarm-coding", levels="2,4")
    assert by_choice("coding", "cliff") == by_words("coding", find_cliff=True)
    assert by_choice("coding", "open", rate="2,4") == by_words("coding", rate="2,4")
    assert by_choice("coding", "probe") == by_words("coding", levels="1", requests="1", warmup="1")


def test_what_was_typed_for_another_plan_does_not_count() -> None:
    assert by_choice("coding", "manual", levels="nonsense", rate="9", runs="x") == by_choice("coding", "manual")
    assert by_choice("s4-mixed-fastapi", "sweep", requests="7") == by_words("s4-mixed-fastapi")


@pytest.mark.parametrize("plan", ["manual", "cliff", "open"])
def test_tasks_that_belong_together_are_asked_in_one_way_alone(plan: Kind) -> None:
    for workload in ("s4-mixed-fastapi", "orchestrator-dag"):
        with pytest.raises(BadInput, match="can be asked in no other way"):
            by_choice(workload, plan, rate="4")


def test_a_preview_tells_kind_number_lengths_check_load_and_a_sample() -> None:
    known = {task.name: task for task in catalogue.tasks()}
    told = " ".join(task_words(known["s4-mixed-fastapi"], 60, 9))
    for part in (
        "mixed",
        "5 prompts",
        "in: 32 to 64 words",
        "check: keywords",
        "load: a main task",
        "C=1,2,3,5",
        "“Write a FastAPI",
    ):
        assert part in told
    assert "check: none" in " ".join(task_words(known["coding"], 60, 9))
    assert plan_words(known["s2-swarm-50"].plan).startswith("50 agents at once")


def test_no_name_runs_into_what_is_said_of_it() -> None:
    lines = in_columns([(task.name, task.description) for task in catalogue.tasks()])
    for task, line in zip(catalogue.tasks(), lines, strict=True):
        assert line.startswith(f"{task.name} ") and line.split("  ", 1)[1].strip().startswith(task.description[:9])


def two_models(to: Answering) -> None:
    to.whole(200, b'{"object":"list","data":[{"id":"small","object":"model"},{"id":"large","object":"model"}]}')


async def test_models_of_the_endpoint_are_listed_and_chosen_by_keys(tmp_path: Path, until: Until) -> None:
    with scripted(listing=two_models) as server:
        app = SwarmApp(session_root=tmp_path / "sessions")
        async with app.run_test(size=(80, 24)) as pilot:
            await until(lambda: "coding" in screen_text(app))
            app.screen.query_one("#url", Input).focus()
            app.screen.query_one("#url", Input).value = server.url
            await until(lambda: "large" in screen_text(app))
            await pilot.press("tab", "j")
            await until(lambda: "› large" in screen_text(app))
            await pilot.press("tab", "o", "w", "n")
            await until(lambda: "› another name" in screen_text(app))


async def test_flags_can_be_told_of_a_server_that_does_not_show_them(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[Order] = []
    monkeypatch.setattr(SwarmApp, "open_run", lambda app, order: orders.append(order))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "sim:moe-tp1" in screen_text(app))
        app.screen.query_one("#url", Input).value = SIM
        await until(lambda: not app.screen.query_one("#of-flags").display)
        app.screen.query_one("#url", Input).value = "http://127.0.0.1:1"
        await until(lambda: app.screen.query_one("#of-flags").display)
        app.screen.query_one("#flags", Input).value = " --max-num-seqs 4 "
        await pilot.press("f5")
        await until(lambda: bool(orders))
    assert orders[0].server_flags == "--max-num-seqs 4"


async def test_a_mixed_workload_is_walked_through_in_the_app(tmp_path: Path, until: Until) -> None:
    """Chosen by keys: its own plan comes with it, its main task is told apart, and answers have their verdicts."""
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#workloads").focus()
        await pilot.press("end", "up")
        await until(lambda: "› mixed: a main task" in screen_text(app))
        track = await start_run(app, pilot, until, SIM)
        await until(lambda: "★" in screen_text(app) and "side" in screen_text(app))
        await pilot.press("plus")
        await until(lambda: "s4-mixed-fastapi is mixed" in screen_text(app))
        await until(lambda: track.ended is not None)
        await pilot.press("4")
        await until(lambda: "pass" in screen_text(app) and "docstring" in screen_text(app))
    assert track.frame is not None and [level.c for level in track.frame.levels] == [1, 2, 3, 5]


async def test_an_open_loop_of_ones_own_shows_its_rate_and_how_late_it_is(tmp_path: Path, until: Until) -> None:
    (tmp_path / "mine.toml").write_text(OPEN)
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#file", Input).value = str(tmp_path / "mine.toml")
        await until(lambda: "› open loop: 10,20 requests a second" in screen_text(app))
        track = await start_run(app, pilot, until, "sim:moe-tp1?speed=10")
        await until(lambda: "requests/s" in screen_text(app) and "late" in screen_text(app))
        await until(lambda: track.ended is not None)
        await until(lambda: "served" in screen_text(app))
    assert track.frame is not None and [level.rate for level in track.frame.levels] == [10.0, 20.0]


async def test_defaults_of_the_config_stand_on_the_screen_and_count(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[Order] = []
    monkeypatch.setattr(SwarmApp, "open_run", lambda app, order: orders.append(order))
    config = Config(
        endpoints={"box": Known(url="http://127.0.0.1:1")},
        defaults=Defaults(
            endpoint="box", workload="chat", levels=(1, 3), runs=2, max_tokens=64, timeout="90s", no_gpu=True
        ),
    )
    app = SwarmApp(config=config, session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "› chat" in screen_text(app) and "nobody listens on port 1" in screen_text(app))
        assert "› box" in screen_text(app) and "C=1,3" in screen_text(app) and "2 runs" in screen_text(app)
        await pilot.press("f5")
        await until(lambda: bool(orders))
    (order,) = orders
    assert (order.endpoints, order.gpus) == (("http://127.0.0.1:1",), False)
    assert (order.plan.levels, order.plan.runs, order.plan.max_tokens) == ((1, 3), 2, 64)
    assert order.plan.timeouts.total == order.plan.timeouts.first_token == 90.0


def test_what_was_chosen_last_goes_before_the_defaults() -> None:
    config = Config(defaults=Defaults(workload="chat", levels="1,3", warmup=2))
    chosen = first_choices(Last(workload="coding", plan="cliff"), config)
    assert (chosen.workload, chosen.plan, chosen.levels, chosen.warmup) == ("coding", "cliff", "1,3", "2")
    assert first_choices(Last(), Config()) == Last(workload="coding", plan="manual")


def test_what_was_taken_from_the_config_follows_it(tmp_path: Path) -> None:
    before, after = (Config(defaults=Defaults(levels=levels)) for levels in ("1,3", "1,2,4"))
    chosen = first_choices(Last(), before)
    write_last(msgspec.structs.replace(chosen, runs="2", recent=("http://a",)), before, tmp_path)
    again = first_choices(read_last(tmp_path), after)
    assert (again.levels, again.runs, again.recent) == ("1,2,4", "2", ("http://a",))


def test_a_usual_duration_is_for_loads_that_last() -> None:
    usual = Defaults(duration="30s")
    made = {
        name: make_order(
            Choice(endpoint=SIM, model="", workload=name, plan="sweep", defaults=usual), Path("/nowhere")
        ).plan.duration_s
        for name in ("coding", "s0-swarm-coding", "s2-swarm-50")
    }
    assert made == {"coding": 30.0, "s0-swarm-coding": None, "s2-swarm-50": None}


async def test_numbers_lead_to_the_lists_and_esc_from_a_field_to_the_first(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "coding" in screen_text(app) and app.focused is not None)
        reached = []
        for key in "2341":
            await pilot.press(key)
            await pilot.pause()
            reached.append(app.focused.id if app.focused else None)
        assert reached == ["models", "workloads", "plans", "endpoints"]
        await pilot.press("tab", "4")
        await until(lambda: app.screen.query_one("#url", Input).value == "4")
        await pilot.press("escape")
        await until(lambda: app.focused is not None and app.focused.id == "endpoints")


async def test_an_address_without_a_server_says_why(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)):
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#url", Input).value = "http://nowhere.invalid"
        await until(lambda: "no host is called" in screen_text(app))
        app.screen.query_one("#url", Input).value = "127.0.0.1:1"
        await until(lambda: "nobody listens on port 1" in screen_text(app))
