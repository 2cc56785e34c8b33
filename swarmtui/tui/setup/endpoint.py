"""The left half of the setup screen: endpoint, model, API, label and note."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from swarmtui.client import catalogue
from swarmtui.model.config import EndpointConfig
from swarmtui.model.endpoint import AUTO, PATHS
from swarmtui.model.run_request import SIMULATOR_PREFIX
from swarmtui.model.schema import BadInput
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.text import sanitize
from swarmtui.tui.cursor_list import PickItem, PickList
from swarmtui.tui.input_line import TextField
from swarmtui.tui.lines import wrap
from swarmtui.tui.setup.form import SetupChoices
from swarmtui.tui.setup.view import preset_rows, server_rows, server_text

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

# Ids of the item that stands for the text field below a list, and of the first model that the server lists.
TYPED = "typed"
_FIRST = "first"
_INSPECT_AFTER_S = 0.6
# The number of models shown on a low and on a tall screen.
_MODEL_ROWS, _TALL = (3, 6), 34


def field(name: str, label: str, value: str = "", hint: str = "") -> ComposeResult:
    """A label and a text field; `hint` is shown while the field is empty."""
    with Horizontal(classes="field", id=f"{name}-field"):
        yield Static(label, markup=False, classes="name")
        entry = TextField(value, id=name, compact=True, placeholder=hint)
        entry.cursor_blink = False
        yield entry


class EndpointPart(VerticalScroll):
    """Discovers servers on this host, and posts `Changed` when its values may have changed."""

    app: SwarmApp
    can_focus = False

    class Changed(Message):
        pass

    def __init__(self, choices: SetupChoices) -> None:
        super().__init__(id="endpoint-part", can_focus=False)
        self._choices = choices
        self._found: tuple[DiscoveredServer, ...] = ()
        self._searching = True
        self._inspected: dict[str, DiscoveredServer] = {}
        self._inspect_timer: Timer | None = None
        self._presets: tuple[catalogue.SimulatorPreset, ...] = ()
        self._user_moved = False

    def compose(self) -> ComposeResult:
        yield Static("── 1 endpoint ", markup=False, classes="rule")
        yield PickList(id="endpoints")
        yield Static("", markup=False, id="about")
        yield from field("url", "URL", hint="http://127.0.0.1:8000")
        yield Static("── 2 model ", markup=False, classes="rule")
        yield PickList(id="models")
        yield from field("model", "name", hint="another model")
        yield from field("api", "API", self._choices.api, hint=f"{', '.join(PATHS)} or {AUTO}")
        yield from field("label", "label", hint="a name for this session")
        yield from field("note", "note", hint="a comment on this session")
        yield from field("flags", "flags", hint="flags the server was started with")

    def on_mount(self) -> None:
        self._list()

    def fill(self) -> None:
        """Load what the first paint does not wait for."""
        self._presets = catalogue.simulator_presets()
        self.rescan()

    def rescan(self) -> None:
        self._searching = True
        self._inspected.clear()
        self._list()
        self.run_worker(self._discover(), exclusive=True, group="discover", exit_on_error=False)

    # values

    @property
    def endpoint(self) -> str:
        picked = self._pick_list("endpoints").picked
        return self._typed("url").strip() if picked == TYPED else picked

    @property
    def model(self) -> str:
        picked = self._pick_list("models").picked
        if picked == TYPED:
            return self._typed("model")
        known = self.known
        return picked if picked != _FIRST else known.model or "" if known else ""

    @property
    def known(self) -> EndpointConfig | None:
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
        return not self.endpoint.startswith(SIMULATOR_PREFIX) and not (server and server.flags)

    def describe(self, width: int) -> None:
        """Show what is known about the endpoint, and the field for its flags if they are needed."""
        self.on_resize()
        self.query_one("#flags-field").display = self.needs_flags
        server, preset = self.server, self._preset()
        text = server_text(server) if server else sanitize(preset.description) if preset else ""
        self.query_one("#about", Static).update("\n".join(wrap(text, width)[:2]))

    def on_resize(self) -> None:
        models = self._pick_list("models")
        models.styles.height = min(len(models.rows), _MODEL_ROWS[self.app.size.height >= _TALL])

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
        """List discovered, configured and recent endpoints, the URL field, and the simulator."""
        endpoints = self._pick_list("endpoints")
        configured = {name: endpoint.url for name, endpoint in self.app.config.endpoints.items()}
        items: list[PickItem] = []
        if not self._found:
            status = "searching for servers on this host …" if self._searching else "no server found on this host"
            items.append(PickItem("", status))
        items += [PickItem(*row) for row in server_rows(self._found, configured, self._choices.recent)]
        items.append(PickItem(TYPED, "the URL typed below"))
        if self._presets:
            items.append(PickItem("", "SIMULATED, no server or GPU needed:"))
            items += [PickItem(*row) for row in preset_rows(self._presets)]
        default = self._choices.endpoint or (self._found[0].url if self._found else f"{SIMULATOR_PREFIX}moe-tp1")
        endpoints.set_items(items, endpoints.picked if self._user_moved else default)
        url = self.query_one("#url", Input)
        if self._presets and not self._user_moved and not url.value and endpoints.picked != default:
            url.value = default

    def _list_models(self) -> None:
        """List the models of the endpoint, and the name field."""
        server, preset, models = self.server, self._preset(), self._pick_list("models")
        names = server.models if server else (preset.model,) if preset else ()
        items = [PickItem(name, sanitize(name)) for name in names] or [PickItem(_FIRST, "first model of the server")]
        wanted = models.picked if models.picked == TYPED or models.picked in names else self._choices.model
        models.set_items([*items, PickItem(TYPED, "the name typed below")], wanted)

    async def _discover(self) -> None:
        self._found = await asyncio.to_thread(catalogue.discover_servers)
        self._searching = False
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
        self.run_worker(self._inspect(url), exclusive=True, group="inspect", exit_on_error=False)

    async def _inspect(self, url: str) -> None:
        try:
            configured = self.known or EndpointConfig(url=url)
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

    @on(PickList.Moved)
    def _list_moved(self, event: PickList.Moved) -> None:
        event.stop()
        if event.pick.id == "endpoints":
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
        self._user_moved = True
        self._list_models()
        self._inspect_later()
