"""The setup screen: choices by keys, and the same requests as the command line makes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from swarmtui.cli.run import run
from swarmtui.cli.run_options import build_run_request as order_of_words
from swarmtui.client import catalogue
from swarmtui.client.choices import PlanKind, RunChoices
from swarmtui.client.request_builder import build_request
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config, Defaults, EndpointConfig
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.sessions.store import write_summary
from swarmtui.tui.app import AppResult, SwarmApp
from swarmtui.tui.lines import first_lines
from swarmtui.tui.live.watch_screens import SavedScreen
from swarmtui.tui.live_model import LiveModel
from swarmtui.tui.pick_list import PickItem, PickList, item_lines
from swarmtui.tui.setup.form import LastSetup, applicable, default_choices, read_setup, write_setup
from swarmtui.tui.setup.last_time import naming_flags
from swarmtui.tui.setup.view import last_time_texts, plan_text, server_lines, workload_lines
from tests.cli.scripted_server import ScriptedHandler, scripted_server
from tests.tui.conftest import Until
from tests.tui.frame_builders import found_server
from tests.tui.screen_text import screen_text
from tests.tui.test_whole_loop import start_run

RECORDED = Path(__file__).parent / "recorded"
SIM = "sim:gpt-oss-20b-5slot?speed=12"
OPEN = """
kind = "random"
name = "mine"
input_tokens = 20
output_tokens = 10
[load]
mode = "open"
rate = [10, 20]
requests = 40
"""


def command_line_plan(workload: str, **options: object) -> Plan:
    """The plan that `swarmtui run` makes, without its random seed."""
    params = run.make_context("run", []).params | {"workload": workload} | options
    plan: Plan = order_of_words((SIM,), params).plan
    return msgspec.structs.replace(plan, seed=0)


def build(choices: RunChoices) -> RunRequest:
    return build_request(applicable(choices), (EndpointConfig(url=SIM),), Path("/nowhere"))


def setup_plan(workload: str, plan: PlanKind, **typed: Any) -> Plan:
    request = build(RunChoices(endpoints=(SIM,), workload=workload, plan=plan, **typed))
    return msgspec.structs.replace(request.plan, seed=0)


@pytest.mark.parametrize("workload", [workload.name for workload in catalogue.builtin_workloads()])
def test_a_workload_has_the_same_plan_as_on_the_command_line(workload: str) -> None:
    assert setup_plan(workload, "sweep") == command_line_plan(workload)
    assert setup_plan(workload, "sweep", warmup="3") == command_line_plan(workload, warmup="3")


def test_typed_fields_override_the_workload_like_options() -> None:
    typed = {"levels": "1,3", "runs": "2", "requests": "5", "canaries": "5%"}
    same = command_line_plan("coding", levels="1,3", runs=2, requests="5", canaries="5%")
    assert setup_plan("coding", "sweep", **typed) == same and same.load.canary_share == 0.05
    assert setup_plan("s0-swarm-coding", "sweep", levels="2,4") == command_line_plan("s0-swarm-coding", levels="2,4")
    assert setup_plan("coding", "cliff") == command_line_plan("coding", find_cliff=True)
    assert setup_plan("coding", "open", rate="2,4") == command_line_plan("coding", rate="2,4")
    one_request = Closed(levels=(1,), requests="1", warmup=1, preroll=False)
    assert setup_plan("coding", "probe").load == one_request


def test_requests_of_a_trace_that_are_too_long_have_a_field() -> None:
    kinds: tuple[PlanKind, ...] = ("sweep", "manual")
    for kind in kinds:
        assert setup_plan("agents", kind, too_long="skip").too_long == "skip"
        assert setup_plan("coding", kind, too_long="skip").too_long is None
    with pytest.raises(BadInput) as caught:
        build(RunChoices(endpoints=(SIM,), workload="agents", plan="sweep", too_long="cut"))
    assert [error.key for error in caught.value.each] == ["too_long"]


def test_fields_of_another_plan_are_ignored() -> None:
    assert setup_plan("coding", "manual", levels="nonsense", rate="9", runs="x") == setup_plan("coding", "manual")
    assert setup_plan("s4-mixed-fastapi", "sweep", requests="7") == command_line_plan("s4-mixed-fastapi")


@pytest.mark.parametrize("plan", ["manual", "cliff", "open"])
def test_a_fixed_load_mode_cannot_be_changed(plan: PlanKind) -> None:
    for workload in ("s4-mixed-fastapi", "orchestrator-dag"):
        with pytest.raises(BadInput) as caught:
            build(RunChoices(endpoints=(SIM,), workload=workload, plan=plan, rate="4"))
        assert [error.key for error in caught.value.each] == ["workload"]


def test_preview_describes_prompts_check_load_and_a_sample() -> None:
    known = {workload.name: workload for workload in catalogue.builtin_workloads()}
    text = " ".join(workload_lines(known["s4-mixed-fastapi"], 60, 9))
    for part in (
        "5 prompts",
        "32 to 64 words",
        "check: keywords",
        "load: a primary task",
        "C=1,2,3,5",
        "“Write a FastAPI",
    ):
        assert part in text
    assert "answers: no limit; cache cold; check: none" in " ".join(workload_lines(known["coding"], 60, 9))
    assert "answers: at most 128 tokens" in " ".join(workload_lines(known["coding"], 60, 9, 128))
    assert plan_text(known["s2-swarm-50"].plan).startswith("50 agents at once")


def test_the_plan_says_how_many_requests_the_table_will_count() -> None:
    assert "about 5 to 9 requests each" in plan_text(Plan(load=Closed(levels=(1, 2, 4, 8))))
    assert ", 40 requests each" in plan_text(Plan(load=Closed(levels=(1,), requests=40)))
    assert "about 4 to 32 requests each" in plan_text(Plan(load=Closed(levels=(1, 8), requests="4C", complete=True)))
    assert "30 s each" in plan_text(Plan(load=Closed(levels=(1, 8), duration="30s")))


def test_names_and_descriptions_of_a_list_are_separated() -> None:
    known = [PickItem(found.name, found.name, found.description) for found in catalogue.builtin_workloads()]
    for item, line in zip(known, item_lines(known, 200), strict=True):
        assert line.startswith(f"{item.text} ")
        assert line.split("  ", 1)[1].strip() == item.about


def test_descriptions_of_a_list_begin_in_one_column_or_are_left_out_together() -> None:
    items = [
        PickItem("a", "chat", "1,024 tokens in, 1,024 out, random words"),
        PickItem("b", "日本語", "short"),
        PickItem("c", "▸ 5 more, in a line that is much longer"),
    ]
    assert item_lines(items, 40) == ["chat    1,024 tokens in, 1,024 out …", "日本語  short", items[2].text]
    assert item_lines(items, 30) == ["chat", "日本語", "▸ 5 more, in a line that is …"]
    assert item_lines([PickItem("a", "sim:moe-tp1", "4 slots")], 20) == ["sim:moe-tp1  4 slots"]


async def test_the_field_of_the_slo_explains_its_words_while_it_has_the_cursor(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(2),))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 40)):
        await until(lambda: "● Enter asks" in screen_text(app))
        app.screen.query_one("#slo", Input).focus()
        await until(lambda: "ttft_p90=2s: first token" in screen_text(app))
        assert "stream_p10=20: 20 tok/s for 90 %" in screen_text(app)
        app.screen.query_one("#slo", Input).value = "ttft=never"
        await until(lambda: "✖ " in screen_text(app))
        app.screen.query_one("#slo", Input).value = ""
        app.screen.query_one("#label", Input).focus()
        await until(lambda: "● Enter asks" in screen_text(app))


async def test_another_server_has_the_default_slo_before_its_address_is_typed(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "how many agents? about a minute" in screen_text(app))
        endpoints = app.screen.query_one("#endpoints", PickList)
        await until(lambda: endpoints.has_focus and "14 simulators" in screen_text(app))
        await pilot.press("g")
        await until(lambda: "type the URL of a server" in screen_text(app))
        slo, answers = app.screen.query_one("#slo", Input), app.screen.query_one("#max_tokens", Input)
        assert (slo.placeholder, answers.placeholder) == ("ttft_p90=2s,stream_p10=20", "at most 128 tokens")
        app.screen.query_one("#url", Input).value = "nope://"
        await until(lambda: "unsupported scheme" in screen_text(app))
        assert slo.placeholder == "ttft_p90=2s,stream_p10=20"
        await pilot.press("4", *["down"] * 5)
        await until(lambda: slo.placeholder == "none, or ttft_p90=2s,…")


async def test_enter_asks_how_many_agents_with_the_default_slo_or_a_typed_one(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(2),))
    app = SwarmApp(session_root=tmp_path)
    started: list[RunRequest] = []
    monkeypatch.setattr(app, "open_run", started.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "› how many agents? about a minute" in screen_text(app))
        await until(lambda: "a first token within 2 s and 20 tok/s each, for 90 % of requests" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: bool(started))
        app.screen.query_one("#slo", Input).value = "ttft_p95=500ms"
        app.screen.query_one("#max_tokens", Input).value = "many"
        await until(lambda: "max tokens: 'many' is not a whole number above 0" in screen_text(app))
        app.screen.query_one("#max_tokens", Input).value = "256"
        await until(lambda: "a first token within 500 ms, for 95 % of requests" in screen_text(app))
        await pilot.press("4", "down", "enter")
        await until(lambda: len(started) == 2)
    plans = [(one.plan.goal, one.plan.slo, one.plan.alpha, one.plan.max_tokens) for one in started]
    assert plans == [
        ("capacity", "ttft_p90=2s,stream_p10=20", 0.2, 128),
        ("capacity", "ttft_p95=500ms", 0.01, 256),
    ]


async def test_a_label_is_for_one_run(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = msgspec.structs.replace(found_server(2), flags=None)
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (hidden,))
    app = SwarmApp(session_root=tmp_path)
    started: list[RunRequest] = []
    monkeypatch.setattr(app, "open_run", started.append)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "› 127.0.0.1:1  llama.cpp" in screen_text(app) and "● Enter " in screen_text(app))
        typed = {"label": "two slots", "note": "first", "flags": "--parallel 2"}
        for name, text in typed.items():
            app.screen.query_one(f"#{name}", Input).value = text
        await pilot.press("f5")
        await until(lambda: bool(started))
        assert not any(app.screen.query_one(f"#{name}", Input).value for name in typed)
        await pilot.press("f5")
        await until(lambda: len(started) == 2)
    assert [(one.label, one.note, one.server_flags) for one in started] == [
        ("two slots", "first", "--parallel 2"),
        ("", "", ""),
    ]


def list_two_models(to: ScriptedHandler) -> None:
    to.whole(200, b'{"object":"list","data":[{"id":"small","object":"model"},{"id":"large","object":"model"}]}')


async def test_models_of_the_endpoint_can_be_picked(tmp_path: Path, until: Until) -> None:
    with scripted_server(listing=list_two_models) as server:
        app = SwarmApp(session_root=tmp_path / "sessions")
        async with app.run_test(size=(80, 24)) as pilot:
            await until(lambda: "coding" in screen_text(app))
            app.screen.query_one("#url", Input).focus()
            app.screen.query_one("#url", Input).value = server.url
            await until(lambda: "large" in screen_text(app))
            await pilot.press("tab", "j")
            await until(lambda: "› large" in screen_text(app))
            await pilot.press("tab", "o", "w", "n")
            await until(lambda: "› another model: its name" in screen_text(app))


def test_the_flags_of_a_server_come_first_and_what_does_not_fit_is_marked() -> None:
    lines = server_lines(found_server(2, 4096), 38)
    assert lines == ["flags: --parallel 2 --flash-attn", "llama.cpp · 2 slots · context", "4,096 each · pid 7 · tiny"]
    assert first_lines(lines, 3, 38) == lines
    assert first_lines(lines, 2, 38) == [lines[0], "llama.cpp · 2 slots · context …"]


async def test_help_begins_with_the_field_under_the_cursor_and_the_keys_before_the_details_of_the_server(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "discover_servers", lambda timeout_s=1.0: (found_server(2, 4096),))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "› 127.0.0.1:1" in screen_text(app) and "at most 128 tokens" in screen_text(app))
        await pilot.press("question_mark")
        await until(lambda: "Here" in screen_text(app))
        shown = screen_text(app)
        server = "flags: --parallel 2 --flash-attn · llama.cpp · 2 slots"
        parts = ("Here", "endpoint ", "Setup", "Start the benchmark", server)
        places = [shown.index(part) for part in parts]
        assert places == sorted(places)
        await pilot.press("escape")
        app.screen.query_one("#max_tokens", Input).focus()
        await until(lambda: "F1 help" in screen_text(app))
        await pilot.press("f1")
        await until(lambda: "the longest answer, in tokens" in screen_text(app))


async def test_flags_can_be_typed_for_a_server_that_does_not_report_them(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[RunRequest] = []
    monkeypatch.setattr(SwarmApp, "open_run", lambda app, request: requests.append(request))
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "sim:moe-tp1" in screen_text(app))
        app.screen.query_one("#url", Input).value = SIM
        await until(lambda: not app.screen.query_one("#flags").display)
        app.screen.query_one("#url", Input).value = "http://127.0.0.1:1"
        await until(lambda: app.screen.query_one("#flags").display)
        app.screen.query_one("#flags", Input).value = " --max-num-seqs 4 "
        app.screen.query_one("#api", Input).value = "mesages"
        await until(lambda: "API: 'mesages' is not one of chat, messages" in screen_text(app))
        app.screen.query_one("#api", Input).value = "messages"
        await pilot.press("f5")
        await until(lambda: bool(requests))
    assert (requests[0].server_flags, requests[0].api) == ("--max-num-seqs 4", "messages")


async def start_mixed(app: SwarmApp, pilot: Pilot[AppResult], until: Until, endpoint: str) -> LiveModel:
    """Pick the mixed workload by keys and start it."""
    await until(lambda: "coding" in screen_text(app))
    app.screen.query_one("#workloads").focus()
    await pilot.press("end", "up", "enter", "end", "up")
    await until(lambda: "› mixed: a primary task" in screen_text(app))
    return await start_run(app, pilot, until, endpoint)


async def test_a_mixed_workload_shows_its_primary_task_and_refuses_steering(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        # Slow enough that it is not over before the app has a core.
        await start_mixed(app, pilot, until, "sim:gpt-oss-20b-5slot")
        await until(lambda: "★" in screen_text(app) and "side" in screen_text(app))
        await pilot.press("plus")
        await until(lambda: "has load mode mixed" in screen_text(app))


async def test_a_mixed_workload_runs_with_its_own_plan_and_checks_its_answers(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        live = await start_mixed(app, pilot, until, SIM)
        await until(lambda: live.ended is not None)
        await until(lambda: "[7] result" in screen_text(app))  # it comes to the front at the end
        await pilot.press("4", "4")
        await until(lambda: "pass" in screen_text(app))
        await pilot.press(*["pagedown"] * 5)  # below the levels, and the remarks of a busy host
        await until(lambda: "docstring" in screen_text(app))
    assert live.frame is not None and [level.c for level in live.frame.levels] == [1, 2, 3, 5]


async def test_an_open_loop_workload_file_shows_rate_and_send_delay(tmp_path: Path, until: Until) -> None:
    (tmp_path / "mine.toml").write_text(OPEN)
    app = SwarmApp(session_root=tmp_path / "sessions")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#file", Input).value = str(tmp_path / "mine.toml")
        await until(lambda: "› open loop: 10,20 requests/s" in screen_text(app))
        live = await start_run(app, pilot, until, "sim:moe-tp1?speed=10")
        await until(lambda: "requests/s" in screen_text(app) and "send delay" in screen_text(app))
        await until(lambda: live.ended is not None)
        await until(lambda: "done/s" in screen_text(app))
    assert live.frame is not None and [level.rate for level in live.frame.levels] == [10.0, 20.0]


async def test_defaults_of_the_config_are_shown_and_used(
    tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[RunRequest] = []
    monkeypatch.setattr(SwarmApp, "open_run", lambda app, request: requests.append(request))
    config = Config(
        endpoints={"box": EndpointConfig(url="http://127.0.0.1:1")},
        defaults=Defaults(
            endpoint="box", workload="chat", levels=(1, 3), runs=2, max_tokens=64, timeout="90s", no_gpu=True
        ),
    )
    app = SwarmApp(config=config, session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "› chat" in screen_text(app) and "no server listens on port 1" in screen_text(app))
        assert "› box" in screen_text(app) and "C=1,3" in screen_text(app) and "2 runs" in screen_text(app)
        await pilot.press("f5")
        await until(lambda: bool(requests))
    (request,) = requests
    assert (request.endpoints, request.gpus) == (("http://127.0.0.1:1",), False)
    assert (request.plan.load.levels, request.plan.load.runs, request.plan.max_tokens) == ((1, 3), 2, 64)
    assert request.plan.timeouts.total == request.plan.timeouts.first_token == 90.0


def test_last_choices_override_the_defaults(tmp_path: Path) -> None:
    write_setup(LastSetup(choices=RunChoices(workload="coding", plan="cliff")), Config(), tmp_path)
    config = Config(defaults=Defaults(workload="chat", levels="1,3", warmup=2, timeout="90s"))
    assert default_choices(config) == RunChoices(workload="chat", plan="sweep", levels="1,3", warmup="2", timeout="90s")
    chosen = read_setup(config, tmp_path).choices
    assert (chosen.plan, chosen.levels, chosen.warmup, chosen.timeout) == ("cliff", "1,3", "2", "90s")
    assert default_choices(Config()) == RunChoices(workload="coding", plan="quick")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"choices": {"plan": "nonsense"}}', '{"choices": {"levels": 3}}'])
def test_damaged_choices_are_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "setup.json").write_text(text)
    assert read_setup(Config(), tmp_path) == LastSetup()


def test_choices_that_may_be_secret_are_not_remembered(tmp_path: Path) -> None:
    endpoints = ("http://b", "http://user:pass@a")
    choices = RunChoices(endpoints=endpoints, headers=("X-Key=secret",), api_key_env="KEY", runs="3")
    write_setup(LastSetup(choices=choices, recent=choices.endpoints), Config(), tmp_path)
    assert read_setup(Config(), tmp_path) == LastSetup(choices=RunChoices(plan="sweep", runs="3"), recent=("http://b",))
    assert b"pass" not in (tmp_path / "setup.json").read_bytes()


def test_defaults_are_not_saved_as_choices(tmp_path: Path) -> None:
    before, after = (Config(defaults=Defaults(levels=levels)) for levels in ("1,3", "1,2,4"))
    chosen = msgspec.structs.replace(default_choices(before), runs="2")
    write_setup(LastSetup(choices=chosen, recent=("http://a",)), before, tmp_path)
    again = read_setup(after, tmp_path)
    assert (again.choices.levels, again.choices.runs, again.recent) == ("1,2,4", "2", ("http://a",))


def test_default_duration_applies_to_closed_loops_only() -> None:
    durations = {
        name: setup_plan(name, "sweep", duration="30s").load.duration_s
        for name in ("coding", "s0-swarm-coding", "s2-swarm-50")
    }
    assert durations == {"coding": 30.0, "s0-swarm-coding": None, "s2-swarm-50": None}


async def test_number_keys_focus_lists_and_esc_leaves_a_field(tmp_path: Path, until: Until) -> None:
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


async def test_an_unreachable_address_shows_the_reason(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)):
        await until(lambda: "coding" in screen_text(app))
        app.screen.query_one("#url", Input).value = "http://nowhere.invalid"
        await until(lambda: "unknown host nowhere.invalid" in screen_text(app))
        app.screen.query_one("#url", Input).value = "127.0.0.1:1"
        await until(lambda: "no server listens on port 1" in screen_text(app))


async def test_a_click_picks_an_item_and_a_double_click_confirms_it(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "● Enter " in screen_text(app))
        await pilot.pause()
        models, workloads = (app.screen.query_one(f"#{name}", PickList) for name in ("models", "workloads"))
        await pilot.click(models, offset=(10, 1))
        await until(lambda: models.picked == "typed" and app.focused is models)
        await pilot.click(models, offset=(10, 1), times=2)
        await until(lambda: app.focused is app.screen.query_one("#model"))
        await pilot.click(workloads, offset=(10, 1))
        await until(lambda: workloads.picked == "chat")


async def test_the_picked_item_is_marked_without_colours(tmp_path: Path, until: Until) -> None:
    app = SwarmApp(session_root=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "● Enter " in screen_text(app))
        await pilot.pause()
        await pilot.press("3", "home", "j")
        for name, focused in (("workloads", True), ("plans", False)):
            pick = app.screen.query_one(f"#{name}", PickList)
            assert pick.highlighted is not None
            sign, *texts = pick.render_line(pick.highlighted)
            assert sign.text == " › " and all(text.style is not None for text in texts)
            assert [bool(text.style and text.style.reverse) for text in texts] == [focused] * len(texts)
            assert [bool(text.style and text.style.bold) for text in texts] == [not focused] * len(texts)


async def test_the_first_screen_says_what_was_found_last_time_and_opens_it(tmp_path: Path, until: Until) -> None:
    root = tmp_path / "sessions"
    shutil.copytree(RECORDED, root)
    # A probe since then answers nothing.
    probe = root / "20261116-000000-aaaa"
    shutil.copytree(RECORDED / "20261115-030328-7ec6", probe)
    first, _, rest = (probe / "journal.jsonl").read_bytes().partition(b"\n")
    entry = msgspec.json.decode(first)
    entry["session"] |= {"id": probe.name, "series": {"kind": "probe", "name": "x"}}
    (probe / "journal.jsonl").write_bytes(msgspec.json.encode(entry) + b"\n" + rest)
    for directory in root.iterdir():
        write_summary(directory)
    config = Config(defaults=Defaults(endpoint="sim:qwen36-27b-2x"))
    app = SwarmApp(session_root=root, config=config)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "[0] last time: best C=8: 438" in screen_text(app))
        assert "; 0 opens it" in screen_text(app)
        await pilot.press("0")
        await until(lambda: isinstance(app.screen, SavedScreen) and "[7] result" in screen_text(app))
        assert probe.name not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: "New benchmark" in screen_text(app))
        # Another endpoint has no result yet.
        app.screen.query_one("#url", Input).value = "http://127.0.0.1:9"
        await until(lambda: "last time" not in screen_text(app))


@pytest.mark.parametrize(
    ("age_s", "text"), [(5, "just now"), (61, "1 minute ago"), (7_300, "2 hours ago"), (200_000, "2 days ago")]
)
def test_the_age_of_a_result_is_said_in_words(age_s: float, text: str) -> None:
    assert last_time_texts("15 agents", age_s)[0] == f"last time: 15 agents, {text}; 0 opens it"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (None, "--parallel 2"),
        ({"parallel": "2", "flash-attn": "true", "port": "9"}, "--parallel 2"),
        ({"parallel": "4", "flash-attn": "true"}, "--parallel 2"),
        ({"parallel": "2"}, "--flash-attn"),
    ],
)
def test_the_last_result_is_named_by_the_flags_that_differ_now_or_else_by_that_of_the_slots(
    now: dict[str, str] | None, text: str
) -> None:
    assert naming_flags({"parallel": "2", "flash-attn": "true", "port": "8"}, now) == text
    assert last_time_texts("15 agents", 5, text)[0] == f"last time with {text}: 15 agents, just now; 0 opens it"
    # What is not known is not said.
    assert naming_flags(None, now) == ""
