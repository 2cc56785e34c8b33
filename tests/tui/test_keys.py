"""The table of actions: every key has an effect where it is offered, and can be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec
import pytest
from textual.screen import ModalScreen
from textual.widgets import Input

from swarmtui.model import client_protocol as protocol
from swarmtui.model.base import BadInput
from swarmtui.model.config import Config
from swarmtui.model.findings import SearchState
from swarmtui.model.load import Dag, Mixed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.report.levels import level_table
from swarmtui.report.table import Cell
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.base_screens import HelpTopic, Page
from swarmtui.tui.dialogs import HelpScreen, Palette, change_topic, help_lines, panel_topic
from swarmtui.tui.keys import ACTIONS, GROUPS, KeyContext, Keymap, bindings, keymap, known_ids
from swarmtui.tui.launch import read_app_config as read_config
from swarmtui.tui.lines import cell_width
from swarmtui.tui.live.panels import PANELS
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live.stream_screen import StreamScreen
from swarmtui.tui.live.watch_screens import ReplayScreen, SavedScreen, WatchScreen
from swarmtui.tui.log_screen import LogScreen
from swarmtui.tui.pick_list import PickList
from swarmtui.tui.probes_screen import ProbesScreen
from swarmtui.tui.screens import SCREENS
from swarmtui.tui.sessions.screen import SessionsScreen
from swarmtui.tui.setup.screen import SetupScreen
from swarmtui.tui.tune.list_screen import TuneListScreen
from swarmtui.tui.tune.screen import TuneScreen
from tests.analysis.level_builders import level
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame, hello
from tests.tui.screen_text import screen_text, text_of

CONTEXTS: dict[KeyContext, type] = {
    "live": RunScreen,
    "replay": ReplayScreen,
    "result": SavedScreen,
    "setup": SetupScreen,
    "stream": StreamScreen,
    "sessions": SessionsScreen,
    "watch": WatchScreen,
    "tune": TuneScreen,
    "tunes": TuneListScreen,
    "log": LogScreen,
    "probes": ProbesScreen,
    "everywhere": SwarmApp,
}


def concurrency_commands(source: RecordingSource) -> list[protocol.ClientCommand]:
    return [command for command in source.commands if isinstance(command, protocol.SetConcurrency)]


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_offered_action_has_a_method(context: KeyContext) -> None:
    for action in ACTIONS:
        if context in action.contexts:
            name = f"action_{action.id.partition('(')[0]}"
            assert hasattr(CONTEXTS[context], name), f"{context}: {action.id}"


@pytest.mark.parametrize("context", [context for context in CONTEXTS if context != "everywhere"])
def test_no_key_has_two_actions_at_one_time(context: KeyContext) -> None:
    for ended in (False, True):
        actions = [action for action in Keymap().actions(context) if action.available(ended)]
        keys = [key for action in actions for key in action.keys.split(",")]
        assert len(keys) == len(set(keys))


def test_help_lists_every_action() -> None:
    text = text_of(help_lines(Keymap().actions("live"), 100))
    for action in Keymap().actions("live"):
        assert action.tooltip in text
    assert {action.group for action in ACTIONS} <= set(GROUPS)


def test_help_explains_the_words_of_an_answer() -> None:
    for topic in (HelpTopic(), panel_topic(7)):
        text = " ".join(text_of(help_lines(Keymap().actions("live"), 100, topic)).split())
        for word in ("80 % sure", "(18–23)", "kept, missed", "not sure", "SLO", "may differ by", "? (a change)", "N"):
            assert word in text
        assert text.count("wrong in at most one of five searches") == 1 and "four runs of both" in text


def test_help_on_the_levels_explains_every_heading_and_every_sign_of_their_table() -> None:
    loads = (("closed", None), ("open", 2.0), ("mixed", None), ("sessions", None), ("barrier", None))
    tables = [
        level_table([level(2, load=load, rate=rate)], growing=True, slo=slo)
        for load, rate in loads
        for slo in (None, {2.0: Cell("")})
    ]
    headings = {column.short or column.title for table in tables for column in table.columns}
    explained = {name for names, _ in panel_topic(4).rows for name in names.split(", ")}
    assert {"C", "rate", "p90", "SLO met", "done/s", "hit rate", "primary"} <= headings
    assert {*headings, "baseline", "change", "pass", *"▸▼✓✖?!○◇"} <= explained


@pytest.mark.parametrize("context", get_args(KeyContext))
def test_help_cuts_no_line_at_80_columns(context: KeyContext) -> None:
    actions = Keymap({"more": "plus,equals_sign,ctrl+up"}).actions(context)
    topics = [HelpTopic(), change_topic(with_curves=True), *(panel_topic(key) for key in (None, *PANELS))]
    for topic in topics:
        lines = help_lines(actions, 78, topic)
        assert max(cell_width(text_of([line])) for line in lines) < 78
        text = " ".join(text_of(lines).split())
        assert all(action.tooltip in text for action in actions) and all(row[1] in text for row in topic.rows)
        assert text.count("four runs of both, or longer searches, decide") == 1, "nothing is explained twice"
        shown = [text_of([line]) for line in lines]
        for name, _ in topic.rows:
            assert any(f"{line} ".startswith(f"  {name} ") for line in shown), "no name is cut, or touches its meaning"


async def test_help_of_a_run_has_each_key_once_with_what_it_does_now(until: Until) -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)

    async def explained() -> list[str]:
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen))
        lines = [text_of([line]) for line in app.screen.query_one(Page).lines]
        await pilot.press("escape")
        return [" ".join(line.split()[:2]) for line in lines if line.startswith("  c ")]

    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "[1] curve" in screen_text(app))
        assert await explained() == ["c set"]
        await until(lambda: isinstance(app.screen, RunScreen))
        source.live.apply(protocol.Ended("done", "", ""))
        assert await explained() == ["c compare"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(
    ("figure", "meaning"),
    [
        ("per agent  ", "output tok/s of one agent while it writes"),
        ("TTFT  ", "time to first token"),
        ("tok/s now", "output tokens of all streams"),
        ("waiting", "agents without a first token"),
    ],
)
async def test_help_begins_with_the_figure_under_the_mouse_pointer(
    figure: str, meaning: str, size: tuple[int, int], until: Until
) -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(4), levels=(level(1), level(2))))
    app = SwarmApp(source=source)
    async with app.run_test(size=size) as pilot:
        await until(lambda: "per agent" in screen_text(app))
        y, line = next((y, line) for y, line in enumerate(screen_text(app).splitlines()) if figure in line)
        await pilot.hover(offset=(line.index(figure) + 1, y))
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen))
        first = " ".join(text_of(app.screen.query_one(Page).lines[1:3]).split())
        assert meaning in first


def test_every_registered_screen_can_be_imported() -> None:
    import importlib

    for target in SCREENS.values():
        module, _, name = target.partition(":")
        assert hasattr(importlib.import_module(f"swarmtui.tui.{module}"), name), target


KEYS = [
    (("plus", "plus"), protocol.SetConcurrency(5)),
    (("equals_sign", "plus"), protocol.SetConcurrency(5)),
    (("minus", "minus"), protocol.SetConcurrency(3)),
    (("right_square_bracket", "right_square_bracket"), protocol.SetConcurrency(8)),
    (("left_square_bracket", "left_square_bracket"), protocol.SetConcurrency(2)),
    (("c", "6", "4", "enter"), protocol.SetConcurrency(64)),
    (("s", "enter"), protocol.Sweep((1, 2, 4, 8), 1)),
    (("f", "f"), protocol.FindCliff(1024)),
    (("N", "enter"), protocol.FindCapacity("ttft_p90=2s,stream_p10=20", alpha=0.2, budget_s=60.0)),
    (("n",), protocol.NextLevel()),
    (("p",), protocol.Pause()),
    (("x",), protocol.Stop()),
    (("2", "enter"), protocol.WatchStream(0)),
    (("w", "enter"), protocol.Describe("", "")),
]


@pytest.mark.parametrize(("keys", "command"), KEYS, ids=["-".join(keys) for keys, _ in KEYS])
async def test_keys_send_commands(keys: tuple[str, ...], command: protocol.ClientCommand, until: Until) -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "[1] curve" in screen_text(app))
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        assert command in source.commands


@pytest.mark.parametrize(("c", "halves"), [(2, [1]), (7, [3, 1]), (1000, [500, 250, 125, 62])])
async def test_halve_rounds_down_and_stops_at_one(c: int, halves: list[int]) -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(1), c=c, of=None, steered=True))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(4):
            await pilot.press("left_square_bracket")
            await pilot.pause()
    assert concurrency_commands(source) == [protocol.SetConcurrency(half) for half in halves]


@pytest.mark.parametrize("load", [Mixed(levels=(4,)), Dag(size=4)], ids=lambda load: load.name)
async def test_a_fixed_load_mode_cannot_be_steered(load: Mixed | Dag, until: Until) -> None:
    source = RecordingSource()
    session = msgspec.structs.replace(hello().session, plan=Plan(load=load))
    source.live.apply(protocol.Hello(session, "/nowhere"))
    source.live.apply(msgspec.structs.replace(frame(4), load=load.name))
    app = SwarmApp(source=source)
    steering = ("plus", "minus", "right_square_bracket", "left_square_bracket", "c", "s", "f", "N")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        assert isinstance(app.screen, RunScreen)
        app.screen.data_changed()
        await pilot.pause()
        footer = screen_text(app).splitlines()[-1]
        assert "more" not in footer and "sweep" not in footer and "x stop" in footer
        for key in steering:
            await pilot.press(key)
            await pilot.pause()
        await until(lambda: f"load mode {load.name}" in " ".join(screen_text(app).split()))
        assert source.commands == []
        await pilot.press("p", "x")
        await pilot.pause()
    assert source.commands == [protocol.Pause(), protocol.Stop()]


async def test_an_open_loop_has_no_c_to_step(until: Until) -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(4), load="open", rate=2.0))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("plus")
        await until(lambda: "an open loop has a rate, not a C" in " ".join(screen_text(app).split()))
        assert source.commands == []
        for key in ("c", "3", "enter"):
            await pilot.press(key)
            await pilot.pause()
    assert source.commands == [protocol.SetConcurrency(3)]


async def test_requested_c_is_shown_before_a_frame_reports_it() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "plus", "plus")
        await pilot.pause()
        assert concurrency_commands(source) == [protocol.SetConcurrency(5), protocol.SetConcurrency(6)]
        assert "4 → 6" in screen_text(app)


async def test_an_invalid_number_is_refused_while_typing() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("0", "enter")
        await pilot.pause()
        assert "a number from 1 to" in screen_text(app)
        assert not concurrency_commands(source)
        await pilot.press("escape")


async def test_themes_are_previewed_and_esc_restores_the_old_one() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        styles = app.line_styles
        await pilot.press("t", "j")
        await pilot.pause()
        assert app.theme == "swarm-light" and app.line_styles != styles
        assert "enter: use it from now on" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.theme == "swarm" and app.line_styles == styles
        await pilot.press("t", "j", "j", "enter")
        await pilot.pause()
        assert app.theme == "ansi-dark" and not isinstance(app.screen, ModalScreen)


async def test_a_keymap_changes_keys_and_footer() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source, config=Config(keymap={"more": "a"}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus")
        await pilot.pause()
        assert source.commands == []
        await pilot.press("a", "a")
        await pilot.pause()
        assert source.commands == [protocol.SetConcurrency(5)]
        assert "a agent" in screen_text(app)


def test_an_unknown_action_in_the_keymap_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[keymap]\nmroe = "a"\n')
    with pytest.raises(BadInput, match=r"keymap\.mroe"):
        read_config(tmp_path)


def test_a_missing_config_is_the_default(tmp_path: Path) -> None:
    assert read_config(tmp_path) == Config()


async def test_palette_offers_the_actions_of_the_screen() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert "cliff (f)" in names and "quit (q)" in names
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert isinstance(app.screen, Palette)
        assert not app.screen.query_one(Input).cursor_blink, "each change would be sent over SSH"


async def test_the_present_c_is_not_requested_again(until: Until) -> None:
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(1), c=1, of=None, steered=True))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("minus")
        await until(lambda: "C=1 is the minimum" in screen_text(app))
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("1", "enter")
        await until(lambda: "C is already 1" in screen_text(app))
    assert not concurrency_commands(source)


async def test_manual_control_can_keep_the_c_of_a_sweep() -> None:
    """Also of a sweep whose levels have a duration and no number of requests."""
    source = RecordingSource()
    source.live.apply(msgspec.structs.replace(frame(1), c=4, of=None))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("4", "enter")
        await pilot.pause()
    assert protocol.SetConcurrency(4) in source.commands


def test_every_action_can_be_bound_to_another_key() -> None:
    contexts = {context for action in ACTIONS for context in action.contexts}
    bound = {binding.id for context in contexts for binding in bindings(context)}
    for name in known_ids():
        assert set(keymap({name: "f9"})) <= bound, name


async def test_footer_of_a_small_screen_names_the_panel_keys() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)):
        last = screen_text(app).splitlines()[-1]
        assert f"1–{max(PANELS)} panels" in last and "? help" in last and last.endswith("q quit")


async def test_esc_on_an_ended_run_opens_setup(until: Until) -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("escape")
        await until(lambda: "a run is in progress" in screen_text(app))
        source.live.apply(protocol.Ended("done", "", "/nowhere"))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SetupScreen))
        await until(lambda: isinstance(app.focused, PickList))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, RunScreen))


async def test_the_footer_names_the_way_back(until: Until, tmp_path: Path) -> None:
    """Otherwise the only way out that an opened screen shows is q, which quits the app."""
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        for screen in (WatchScreen(RecordingSource()), SessionsScreen(tmp_path)):
            await app.push_screen(screen)
            await until(lambda: "esc back" in screen_text(app).splitlines()[-1])
            await pilot.press("escape")


async def test_text_typed_at_once_after_the_filter_key_is_part_of_the_filter(until: Until) -> None:
    """Over SSH, keys arrive in one packet: d would detach, and x stop the run."""
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)):
        for key in ("slash", "w", "x", "d"):
            app.simulate_key(key)
        await until(lambda: app.screen.query_one(Input).value == "wxd")
        assert isinstance(app.screen, RunScreen) and app.screen.filter_text == "wxd"


async def test_history_is_requested_again_after_the_app_was_stopped() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test():
        app.resumed()
        assert source.commands == [protocol.Subscribe(hz=app.hz, rows=True)]


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("sweep", "+ again ends the sweep; s begins it again"),
        ("capacity", "+ again ends the search for the most agents; N begins it again"),
    ],
)
async def test_a_key_that_ends_a_sweep_or_search_asks_first(
    goal: Literal["sweep", "capacity"], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = RecordingSource()
    if goal == "capacity":
        search = SearchState(goal="capacity", next_c=4, step="climb")
        source.live.apply(msgspec.structs.replace(frame(4), search=search))
    app = SwarmApp(source=source)
    texts: list[str] = []
    monkeypatch.setattr(app, "toast", texts.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "plus")
        await pilot.pause()
        assert texts == [said] and concurrency_commands(source) == [protocol.SetConcurrency(5)]


async def test_the_question_is_asked_again_by_another_key_and_at_another_level() -> None:
    source = RecordingSource()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "minus", "plus")
        source.live.apply(frame(8))
        await pilot.press("plus")
        await pilot.pause()
        assert not concurrency_commands(source)


async def test_capacity_after_the_end_is_a_new_run_or_a_reason(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    request = RunRequest(endpoints=("sim:moe-tp1",), workload="coding", plan=Plan(), session_root="/nowhere")
    for known in (None, request):
        source = RecordingSource()
        source.live.apply(msgspec.structs.replace(frame(4), status="ended"))
        source.live.apply(protocol.Ended("done", "", ""))
        app = SwarmApp(source=source, request=known)
        texts: list[str] = []
        started: list[RunRequest] = []
        monkeypatch.setattr(app, "toast", texts.append)
        monkeypatch.setattr(app, "open_run", started.append)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("N")
            await pilot.pause()
            await pilot.press("enter")
            await until(lambda: bool(texts or started))  # noqa: B023
        if known is None:
            assert "started elsewhere" in texts[0]
        else:
            assert (started[0].plan.goal, started[0].plan.slo) == ("capacity", "ttft_p90=2s,stream_p10=20")
    assert source.commands == []


async def test_after_a_quick_search_the_same_key_asks_again_without_a_limit_of_time(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Plan(goal="capacity", slo="ttft_p90=1s", alpha=0.2, budget_s=60.0)
    source = RecordingSource()
    session = source.live.session
    assert session is not None
    source.live.session = msgspec.structs.replace(session, plan=quick)
    source.live.apply(msgspec.structs.replace(frame(4), status="ended"))
    source.live.apply(protocol.Ended("done", "", "/nowhere"))
    request = RunRequest(endpoints=("sim:moe-tp1",), workload="coding", plan=quick, session_root="/nowhere")
    app = SwarmApp(source=source, request=request)
    started: list[RunRequest] = []
    monkeypatch.setattr(app, "open_run", started.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "N surer search" in screen_text(app))
        await pilot.press("N")
        await until(lambda: bool(started))
    plan = started[0].plan
    assert (plan.goal, plan.slo, plan.alpha, plan.budget_s) == ("capacity", "ttft_p90=1s", 0.01, None)


async def test_a_chosen_theme_is_kept_unless_the_config_names_one() -> None:
    app = SwarmApp(source=RecordingSource())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("t")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        chosen = app.theme
    assert chosen != "swarm"
    assert SwarmApp(source=RecordingSource()).theme == chosen
    assert SwarmApp(source=RecordingSource(), config=Config(theme="ansi-dark")).theme == "ansi-dark"


@pytest.mark.parametrize(
    ("key", "empty", "about_rows"),
    [
        ("L", "no sessions yet", {"enter result", "m mark", "c compare", "e export", "S share", "o sort", "/ filter"}),
        ("T", "no changes yet", {"y kept", "r reverted", "w note"}),
        ("H", "no probes yet", {"n → next", "N ← previous", "/ filter"}),
    ],
)
async def test_the_footer_of_an_empty_list_has_no_keys_for_its_rows(
    key: str, empty: str, about_rows: set[str], until: Until
) -> None:
    app = SwarmApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "New benchmark" in screen_text(app))
        await pilot.press(key)
        await until(lambda: empty in screen_text(app))
        keys = screen_text(app).splitlines()[-1].strip().split("  ")
        assert "esc back" in keys and not about_rows & {*keys}
