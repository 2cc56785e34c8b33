"""The left half of the setup screen: endpoint, model, API, label and note."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input, OptionList
from textual.worker import Worker, WorkerState

from swarmtui.client import catalogue
from swarmtui.model.base import BadInput
from swarmtui.model.config import EndpointConfig
from swarmtui.model.endpoint import AUTO, PATHS, SIMULATOR_PREFIX
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.text import sanitize
from swarmtui.tui.input_line import TextField
from swarmtui.tui.lines import Line, LineWidget, first_lines, heading, ljust, longest_fit, wrap
from swarmtui.tui.pick_list import PickItem, PickList
from swarmtui.tui.setup.form import LastSetup
from swarmtui.tui.setup.view import LOOPBACK, preset_items, server_items, server_lines, with_gone
from swarmtui.tui.textual_patches import run_in_background

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

# Ids of items: the text field below a list, a line that shows or hides those below it, the first model of the server.
TYPED = "typed"
FOLD = "fold"
_FIRST = "first"
_API_HINTS = (f"{AUTO} {' '.join(PATHS)}", f"{AUTO}, {', '.join(list(PATHS)[:2])} …")
_SEARCHING = "looking for servers on this host …"
_INSPECT_AFTER_S = 0.6
_DISCOVER_S = (1.0, 5.0)
# A search takes 45 ms of CPU time: at this interval, 1.5 % of a core while a server is loading, and 0.15 % otherwise.
_LOOK_S = 3.0
_LEAST_ROWS, _LEAST_ABOUT = 3, 2
# The columns of a label, which are the padding of its field.
_LABEL = 11
# The number of models shown on a low and on a tall screen.
_MODEL_ROWS, _TALL = (3, 6), 34


def frame_title(key: int, part: str) -> str:
    """The title in the upper edge of a frame, with the key that goes to the part, as markup."""
    return f"[$primary]\\[{key}][/] {part}"


class PartHeading(LineWidget):
    """The line above the second part of a frame, with the key that goes to it."""

    def __init__(self, key: int, part: str) -> None:
        super().__init__()
        self._heading = str(key), part

    def draw(self, width: int, height: int) -> list[Line]:
        return [heading(*self._heading, "", width)]


class Field(TextField):
    """A text field and the label before it; `hint` is shown while the field is empty."""

    def __init__(self, name: str, label: str, value: str = "", hint: str = "") -> None:
        super().__init__(value, id=name, compact=True, placeholder=hint, classes="field")
        self._label = label

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint the label on the padding: as widgets of their own, the labels would double the time of the start."""
        style = self.screen.get_component_rich_style("field--label")
        label = Strip([Segment(ljust(f" {self._label}", _LABEL), style)])
        for line_filter in self.get_line_filters():
            label = label.apply_filter(line_filter, self.background_colors[0])
        return [Strip.join([label, strip.crop(_LABEL)]) for strip in super().render_lines(crop)]


class Description(LineWidget):
    """Text in the room that is left between lists and fields; `describe` returns its lines for a width and height."""

    describe: Callable[[int, int], list[str]] = staticmethod(lambda width, height: [])

    def show(self, describe: Callable[[int, int], list[str]]) -> None:
        self.describe = describe
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        return [[(f" {line}", "dim")] for line in self.describe(width - 2, height)]


def fit_list(part: VerticalScroll, pick: PickList, description: Description, least: int) -> None:
    """Give a list the height of its items, as long as `least` lines are left for the description."""
    others = [child for child in part.children if child.display and child not in (pick, description)]
    used = sum(child.styles.height.cells or 1 for child in others if child.styles.height is not None)
    pick.styles.height = min(pick.option_count, max(_LEAST_ROWS, part.size.height - used - least))


class EndpointPart(VerticalScroll):
    """Discovers servers on this host, and posts `Changed` when its values may have changed."""

    app: SwarmApp
    can_focus = False

    class Changed(Message):
        pass

    def __init__(self, setup: LastSetup) -> None:
        super().__init__(id="endpoint-part", can_focus=False)
        self.border_title = frame_title(1, "endpoint")
        self._setup = setup
        self._found: tuple[DiscoveredServer, ...] = ()
        self._searching = True
        self._inspected: dict[str, DiscoveredServer] = {}
        self._inspect_timer: Timer | None = None
        self._presets: tuple[catalogue.SimulatorPreset, ...] = ()
        self.user_moved = False
        self._settled = False
        # The endpoint that Enter starts unless the user picks another one.
        self._first = ""
        self._unfolded: bool | None = None

    def compose(self) -> ComposeResult:
        yield PickList(id="endpoints")
        yield Field("url", "URL", hint="http://10.0.0.4:8000")
        yield Description(id="about")
        yield PartHeading(2, "model")
        yield PickList(id="models")
        yield Field("model", "name", hint="a model that is not listed")
        yield Field("api", "API", self._setup.choices.api or "", hint=_API_HINTS[0])
        yield Field("label", "label", hint="a name for this run")
        yield Field("note", "note", hint="a comment on this run")
        yield Field("flags", "flags", hint="flags the server was started with")

    def on_mount(self) -> None:
        self._list()

    def fill(self) -> None:
        """Load what the first paint does not wait for."""
        self._presets = catalogue.simulator_presets()
        self.rescan()

    def rescan(self) -> None:
        self._searching, self._settled = True, False
        self._list()
        self.search_again()

    def search_again(self) -> None:
        """Search for servers and inspect the chosen one again; what is known is shown until then."""
        self._inspected.clear()
        run_in_background(self, self._discover, group="discover")

    # values

    @property
    def endpoint(self) -> str:
        picked = self._pick_list("endpoints").picked
        return self._typed("url").strip() if picked == TYPED else "" if picked == FOLD else picked

    @property
    def model(self) -> str:
        picked = self._pick_list("models").picked
        if picked == TYPED:
            return self._typed("model")
        configured = self.configured
        return picked if picked != _FIRST else configured.model or "" if configured else ""

    @property
    def configured(self) -> EndpointConfig | None:
        """The configuration of this endpoint in config.toml."""
        return next((known for known in self.app.config.endpoints.values() if known.url == self.endpoint), None)

    @property
    def server(self) -> DiscoveredServer | None:
        """The server found at this endpoint; None if it has not been inspected yet."""
        endpoint = self.endpoint
        discovered = next((server for server in self._found if server.url == endpoint), None)
        return discovered or self._inspected.get(endpoint)

    @property
    def flags(self) -> str:
        return self._typed("flags") if self.needs_flags else ""

    @property
    def needs_flags(self) -> bool:
        """Whether the flags must be typed: those of a server on another host or in a container are not visible."""
        server = self.server
        return not self.endpoint.startswith(SIMULATOR_PREFIX) and bool(self.endpoint) and not (server and server.flags)

    @property
    def missing(self) -> str:
        """Tell the user what to do before an endpoint or a model is chosen; empty if both are."""
        picked = self._pick_list("endpoints").picked
        if picked == FOLD:
            return "Enter hides the simulators" if self._unfolded else "Enter shows the simulators"
        if self.is_waiting:
            return _SEARCHING
        if picked == TYPED and not self.endpoint:
            return "type the URL of a server; Enter goes to the field"
        return "type the name of a model; Enter goes to the field" if self._is_unnamed else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no server of the user has answered yet, and the user has chosen nothing else."""
        return not self._settled and not self.user_moved and not self._typed("url")

    @property
    def _is_unnamed(self) -> bool:
        return self._pick_list("models").picked == TYPED and not self._typed("model")

    def describe(self) -> None:
        """Show what is known about the endpoint, and the field for its flags if they are needed."""
        self.query_one("#flags").display = self.needs_flags
        self.on_resize()
        server, preset = self.server, self._preset()
        self.query_one(Description).show(
            lambda width, height: first_lines(
                server_lines(server, width) if server else wrap(sanitize(preset.description), width) if preset else [],
                height,
                width,
            )
        )

    def on_resize(self) -> None:
        models, api = self._pick_list("models"), self.query_one("#api", Input)
        models.styles.height = min(models.option_count, _MODEL_ROWS[self.app.size.height >= _TALL])
        fit_list(self, self._pick_list("endpoints"), self.query_one(Description), _LEAST_ABOUT)
        api.placeholder = longest_fit(_API_HINTS, self.size.width - 13)

    def toggle_simulators(self) -> None:
        self._unfolded = not self._unfolded
        self.user_moved = True
        self._list()

    def _pick_list(self, name: str) -> PickList:
        return self.query_one(f"#{name}", PickList)

    def _typed(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value

    def _preset(self) -> catalogue.SimulatorPreset | None:
        name = self.endpoint.removeprefix(SIMULATOR_PREFIX).partition("?")[0]
        simulated = self.endpoint.startswith(SIMULATOR_PREFIX)
        return next((preset for preset in self._presets if simulated and preset.name == name), None)

    # lists

    def _list(self) -> None:
        self._list_endpoints()
        self._list_models()
        self.post_message(self.Changed())

    def _list_endpoints(self) -> None:
        """List discovered, configured and recent endpoints, the URL field, and the simulators below one line.

        The one that Enter starts comes first. Simulators are shown if they were chosen last, or if there is nothing
        else to choose.
        """
        endpoints = self._pick_list("endpoints")
        configured = {name: endpoint.url for name, endpoint in self.app.config.endpoints.items()}
        status = _SEARCHING if self._searching else "no server found on this host"
        above = [PickItem("", status)] if not self._found else []
        # A server that went away keeps its line: Enter must not start another one instead.
        keeps = (self.user_moved or self._settled) and "://" in endpoints.picked
        recent = (*self._setup.recent, *([endpoints.picked] if keeps else []))
        servers = server_items(self._found, configured, recent, searched=not self._searching)
        below = [PickItem(TYPED, "another server: its URL below")]
        default = self._default_endpoint(configured.values())
        if self._unfolded is None and not self._searching:
            self._unfolded = not servers or default.startswith(SIMULATOR_PREFIX)
        if self._presets:
            sign = "▾" if self._unfolded else "▸"
            below.append(PickItem(FOLD, f"{sign} no server? {len(self._presets)} simulators"))
            below += preset_items(self._presets) if self._unfolded else []
        known = {item.id for item in (*above, *servers, *below)}
        stays = self.user_moved or (self._settled and endpoints.picked in known)
        self._first = self._first if stays else default
        items = [*above, *sorted(servers, key=lambda item: item.id != self._first), *below]
        # Never the first of the list by chance: it may be another user's.
        endpoints.set_items(items, endpoints.picked if stays else default if default in known else TYPED)
        # From the first answers on, what is found later does not change what Enter starts.
        answered = any(server.reachable and not server.user for server in self._found)
        self._settled = self._settled or answered or not self._searching
        url = self.query_one("#url", Input)
        if self._presets and not self._searching and not stays and not url.value:
            url.value = default if endpoints.picked != default else ""

    def _default_endpoint(self, configured: Iterable[str]) -> str:
        """The endpoint of the last run, unless it is gone or simulated and there is a server on this host.

        A server of another user is never the default.
        """
        last = self._setup.endpoint
        if any(server.user and last.startswith(server.url) for server in self._found):
            last = ""
        gone = last.startswith((SIMULATOR_PREFIX, *LOOPBACK)) and last not in configured
        own = [server for server in self._found if not server.user]
        own = [server for server in own if server.reachable] or own
        if own and (gone or not last) and not any(last.startswith(server.url) for server in own):
            return own[0].url
        return last or f"{SIMULATOR_PREFIX}moe-tp1"

    def _list_models(self) -> None:
        """List the models of the endpoint, and the name field."""
        server, preset, models = self.server, self._preset(), self._pick_list("models")
        names = server.models if server else (preset.model,) if preset else ()
        unknown = _SEARCHING if self.is_waiting else "first model of the server"
        items = [PickItem(name, sanitize(name)) for name in names] or [PickItem(_FIRST, unknown)]
        wanted = models.picked if models.picked == TYPED or models.picked in names else self._setup.choices.model or ""
        models.set_items([*items, PickItem(TYPED, "another model: its name below")], wanted)

    async def _discover(self) -> None:
        """Search once, and again with more time if not all that listen answered: a host under load is slow.

        While the screen is in front, search again when a server was started or stopped, or is loading.
        """
        for timeout_s in _DISCOVER_S:
            started, sockets = time.monotonic(), await asyncio.to_thread(catalogue.listening_sockets)
            self._found = await asyncio.to_thread(catalogue.discover_servers, timeout_s)
            ready = all(server.reachable for server in self._found)
            late = time.monotonic() - started >= timeout_s
            self._searching = (late or not ready) and timeout_s != _DISCOVER_S[-1]
            self._list()
            if not self._searching:
                break
        self._inspect_later()
        while self.screen.is_active:
            await asyncio.sleep(_LOOK_S)
            before, sockets = sockets, await asyncio.to_thread(catalogue.listening_sockets)
            if self.screen.is_active and (sockets != before or not ready):
                found = await asyncio.to_thread(catalogue.discover_servers, timeout_s)
                ready = all(server.reachable for server in found)
                self._found = with_gone(self._found, found)
                self._list()
                self._inspect_later()

    def _inspect_later(self) -> None:
        """Inspect an address that discovery did not find, once the user has stopped typing."""
        if self._inspect_timer is not None:
            self._inspect_timer.stop()
        endpoint = self.endpoint
        if endpoint and not endpoint.startswith(SIMULATOR_PREFIX) and self.server is None:
            self._inspect_timer = self.set_timer(_INSPECT_AFTER_S, lambda: self._start_inspection(endpoint))

    def _start_inspection(self, url: str) -> None:
        run_in_background(self, partial(self._inspect, url), group="inspect")

    async def _inspect(self, url: str) -> None:
        try:
            configured = self.configured or EndpointConfig(url=url)
            self._inspected[url] = await asyncio.to_thread(catalogue.inspect_server, configured)
        except BadInput:
            return
        self._list_models()
        self.post_message(self.Changed())

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR:
            self.app.toast(f"cannot inspect the endpoint: {event.worker.error}")

    # input

    @on(OptionList.OptionHighlighted)
    def _list_moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option_list.id == "endpoints":
            self._endpoint_changed()
        self.post_message(self.Changed())

    @on(Input.Changed)
    def _field_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.id == "model" and event.value:
            self._pick_list("models").pick(TYPED)
        if event.input.id == "url" and event.value:
            self._pick_list("endpoints").pick(TYPED)
            self._endpoint_changed()
        self.post_message(self.Changed())

    def _endpoint_changed(self) -> None:
        self.user_moved = True
        self._list_models()
        self._inspect_later()
