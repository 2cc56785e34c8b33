"""One table of actions: every key does what it says, everywhere it says so, and can be changed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from swarmtui.model import client_protocol as said
from swarmtui.model.schema import BadInput
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.config import Config, read_config
from swarmtui.tui.frame_source import Live
from swarmtui.tui.help import help_lines
from swarmtui.tui.keys import ACTIONS, GROUPS, Keymap, Where, bindings, keymap, known_ids
from swarmtui.tui.live.replay_screen import ReplayScreen
from swarmtui.tui.live.run_screen import RunScreen
from swarmtui.tui.live.stream_screen import StreamScreen
from swarmtui.tui.live.streams import Streams
from swarmtui.tui.live_model import Track
from swarmtui.tui.log.screen import LogScreen
from swarmtui.tui.pick_list import Pick
from swarmtui.tui.probes.screen import ProbesScreen
from swarmtui.tui.sessions.screen import SessionsScreen
from swarmtui.tui.setup.screen import SetupScreen
from swarmtui.tui.tune.configuration_screen import CellScreen
from swarmtui.tui.tune.list_screen import TunesScreen
from swarmtui.tui.tune.screen import TuneScreen
from tests.tui.conftest import Until
from tests.tui.made_frames import frame, hello
from tests.tui.screen_text import screen_text

SCREENS: dict[Where, type] = {
    "live": RunScreen,
    "replay": ReplayScreen,
    "setup": SetupScreen,
    "stream": StreamScreen,
    "sessions": SessionsScreen,
    "watch": CellScreen,
    "tune": TuneScreen,
    "tunes": TunesScreen,
    "log": LogScreen,
    "probes": ProbesScreen,
    "everywhere": SwarmApp,
}


class Heard(Live):
    """A run that notes what it is told."""

    def __init__(self) -> None:
        self.track = Track()
        self.track.hear(hello())
        self.track.hear(frame(4))
        self.commands: list[said.Command] = []

    def open(self, wake: object) -> None:
        pass

    def say(self, command: said.Command) -> None:
        self.commands.append(command)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("where", SCREENS)
def test_every_action_has_a_method_where_it_is_offered(where: Where) -> None:
    for action in ACTIONS:
        if where in action.where:
            name = f"action_{action.id.partition('(')[0]}"
            assert hasattr(SCREENS[where], name), f"{where}: {action.id}"


@pytest.mark.parametrize("where", [where for where in SCREENS if where != "everywhere"])
def test_no_key_means_two_things_on_one_screen(where: Where) -> None:
    keys = [key for action in Keymap().actions(where) for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))


def test_help_tells_of_every_action() -> None:
    told = "\n".join("".join(text for text, _ in line) for line in help_lines(Keymap(), "live", 100))
    for action in Keymap().actions("live"):
        assert action.tooltip in told
    assert {action.group for action in ACTIONS} <= set(GROUPS)


KEYS = [
    (("plus",), said.SetConcurrency(5)),
    (("equals_sign",), said.SetConcurrency(5)),
    (("minus",), said.SetConcurrency(3)),
    (("right_square_bracket",), said.SetConcurrency(8)),
    (("left_square_bracket",), said.SetConcurrency(2)),
    (("c", "6", "4", "enter"), said.SetConcurrency(64)),
    (("s", "enter"), said.Sweep((1, 2, 4, 8), 1)),
    (("f",), said.FindCliff(1024)),
    (("n",), said.NextLevel()),
    (("p",), said.Pause()),
    (("x",), said.Stop()),
    (("enter",), said.WatchStream(0)),
    (("w", "enter"), said.Describe("", "")),
]


@pytest.mark.parametrize(("keys", "command"), KEYS, ids=["-".join(keys) for keys, _ in KEYS])
async def test_keys_become_commands(keys: tuple[str, ...], command: said.Command, until: Until) -> None:
    source = Heard()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.screen.query_one(Streams).chosen is not None)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        assert command in source.commands


async def test_what_was_asked_for_is_seen_before_the_run_has_it() -> None:
    source = Heard()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus", "plus")
        await pilot.pause()
        assert [command for command in source.commands if isinstance(command, said.SetConcurrency)] == [
            said.SetConcurrency(5),
            said.SetConcurrency(6),
        ]
        assert screen_text(app).splitlines()[4].split()[0] == "6"


async def test_a_number_that_cannot_be_is_refused_as_it_is_typed() -> None:
    source = Heard()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("0", "enter")
        await pilot.pause()
        assert "a number from 1 to" in screen_text(app)
        assert not [command for command in source.commands if isinstance(command, said.SetConcurrency)]
        await pilot.press("escape")


async def test_themes_change_what_is_drawn() -> None:
    app = SwarmApp(source=Heard())
    async with app.run_test(size=(80, 24)) as pilot:
        inks = app.inks
        await pilot.press("t")
        await pilot.pause()
        assert app.theme == "ansi-dark" and app.inks != inks


async def test_keys_can_be_changed() -> None:
    source = Heard()
    app = SwarmApp(source=source, config=Config(keymap={"more": "a"}))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("plus")
        await pilot.pause()
        assert source.commands == []
        await pilot.press("a")
        await pilot.pause()
        assert source.commands == [said.SetConcurrency(5)]
        assert "a more" in screen_text(app)


def test_a_config_with_an_unknown_action_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[keymap]\nmroe = "a"\n')
    with pytest.raises(BadInput, match=r"keymap\.mroe"):
        read_config(tmp_path)


def test_no_config_is_fine(tmp_path: Path) -> None:
    assert read_config(tmp_path) == Config()


async def test_the_palette_offers_the_actions_of_the_screen() -> None:
    app = SwarmApp(source=Heard())
    async with app.run_test(size=(80, 24)) as pilot:
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert "cliff (f)" in names and "quit (q)" in names
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert type(app.screen).__name__ == "CommandPalette"


async def test_the_same_c_again_does_not_begin_its_stretch_anew(until: Until) -> None:
    source = Heard()
    source.track.hear(msgspec.structs.replace(frame(1), c=1, of=None, steered=True))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("minus")
        await until(lambda: "C=1 is the lowest there is" in screen_text(app))
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("1", "enter")
        await until(lambda: "C is 1 already" in screen_text(app))
    assert not [command for command in source.commands if isinstance(command, said.SetConcurrency)]


async def test_the_c_of_a_sweep_can_be_taken_over_as_it_is() -> None:
    """Also of one whose levels last a time and have no number of requests."""
    source = Heard()
    source.track.hear(msgspec.structs.replace(frame(1), c=4, of=None))
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("c")
        await pilot.pause()
        await pilot.press("4", "enter")
        await pilot.pause()
    assert said.SetConcurrency(4) in source.commands


def test_every_action_that_may_get_another_key_has_a_binding_to_put_it_on() -> None:
    places = {where for action in ACTIONS for where in action.where}
    bound = {binding.id for where in places for binding in bindings(where)}
    for name in known_ids():
        assert set(keymap({name: "f9"})) <= bound, name


async def test_where_panels_are_out_of_sight_the_last_line_names_their_keys() -> None:
    app = SwarmApp(source=Heard())
    async with app.run_test(size=(80, 24)):
        last = screen_text(app).splitlines()[-1]
        assert "1–6 panels" in last and "? help" in last and last.endswith("q quit")


async def test_from_a_run_that_ended_another_can_be_set_up(until: Until) -> None:
    source = Heard()
    app = SwarmApp(source=source)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("escape")
        await until(lambda: "the run is on" in screen_text(app))
        source.track.hear(said.Ended("done", "", "/nowhere"))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SetupScreen))
        await until(lambda: isinstance(app.focused, Pick))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, RunScreen))
