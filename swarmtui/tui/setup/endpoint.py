"""The left half of the setup screen: which endpoint, which of its models, and what the session is called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from swarmtui.client import catalogue
from swarmtui.model.config import Known
from swarmtui.model.run_request import SIMULATOR
from swarmtui.model.schema import BadInput
from swarmtui.model.telemetry import Discovered
from swarmtui.text import plain
from swarmtui.tui.config import Last
from swarmtui.tui.lines import wrapped
from swarmtui.tui.pick_list import Item, Pick
from swarmtui.tui.setup import view as views
from swarmtui.tui.setup.field import field

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

TYPED = "typed"
_FIRST = "first"
_LOOK_AFTER_S = 0.6
# So many models are in sight at once, on a low screen and on a tall one.
_MODELS, _TALL = (3, 6), 34


class EndpointPart(VerticalScroll):
    """Looks for servers by itself; `Changed` tells that something of its answers may be another now."""

    app: SwarmApp
    can_focus = False

    class Changed(Message):
        pass

    def __init__(self, last: Last) -> None:
        super().__init__(id="where", can_focus=False)
        self._last = last
        self._found: tuple[Discovered, ...] = ()
        self._searching = True
        self._looked: dict[str, Discovered] = {}
        self._typing: Timer | None = None
        self._machines: tuple[catalogue.Machine, ...] = ()
        self._moved = False

    def compose(self) -> ComposeResult:
        yield Static("── 1 endpoint ", markup=False, classes="rule")
        yield Pick(id="endpoints")
        yield Static("", markup=False, id="about")
        yield from field("url", "URL", hint="http://127.0.0.1:8000")
        yield Static("── 2 model ", markup=False, classes="rule")
        yield Pick(id="models")
        yield from field("model", "name", hint="another name")
        yield from field("label", "label", hint="a name for this session")
        yield from field("note", "note", hint="what is special about it")
        yield from field("flags", "flags", hint="how the server was started")

    def on_mount(self) -> None:
        self._list()

    def fill(self) -> None:
        """What needs more imports than the first picture can wait for."""
        self._machines = catalogue.machines()
        self.look_again()

    def look_again(self) -> None:
        self._searching = True
        self._looked.clear()
        self._list()
        self.run_worker(self._discover(), exclusive=True, group="discover", exit_on_error=False)

    # what is chosen

    @property
    def endpoint(self) -> str:
        chosen = self._pick("endpoints").chosen
        return self._typed("url").strip() if chosen == TYPED else chosen

    @property
    def model(self) -> str:
        chosen = self._pick("models").chosen
        if chosen == TYPED:
            return self._typed("model")
        known = self.known
        return chosen if chosen != _FIRST else known.model or "" if known else ""

    @property
    def known(self) -> Known | None:
        """What config.toml says of this endpoint."""
        return next((known for known in self.app.config.endpoints.values() if known.url == self.endpoint), None)

    @property
    def server(self) -> Discovered | None:
        """What was found at this endpoint; None where nobody has looked yet."""
        endpoint = self.endpoint
        here = next((server for server in self._found if server.url == endpoint), None)
        return here or self._looked.get(endpoint)

    @property
    def flags(self) -> str:
        return self._typed("flags") if self.flags_unseen else ""

    @property
    def flags_unseen(self) -> bool:
        """Of a server on another host, or in a container, only people know how it was started."""
        server = self.server
        return not self.endpoint.startswith(SIMULATOR) and not (server and server.flags)

    def describe(self, width: int) -> None:
        """Says what is known of the chosen one, and asks for its flags where they are not."""
        self.on_resize()
        self.query_one("#of-flags").display = self.flags_unseen
        server, machine = self.server, self._machine()
        words = views.found_words(server) if server else plain(machine.description) if machine else ""
        self.query_one("#about", Static).update("\n".join(wrapped(words, width)[:2]))

    def on_resize(self) -> None:
        models = self._pick("models")
        models.styles.height = min(len(models.items), _MODELS[self.app.size.height >= _TALL])

    def _pick(self, name: str) -> Pick:
        return self.query_one(f"#{name}", Pick)

    def _typed(self, name: str) -> str:
        return self.query_one(f"#{name}", Input).value

    def _machine(self) -> catalogue.Machine | None:
        name = self.endpoint.removeprefix(SIMULATOR).partition("?")[0]
        simulated = self.endpoint.startswith(SIMULATOR)
        return next((machine for machine in self._machines if simulated and machine.name == name), None)

    # what is listed

    def _list(self) -> None:
        self._list_endpoints()
        self._list_models()
        self.post_message(self.Changed())

    def _list_endpoints(self) -> None:
        """Found here, configured, recent, typed, simulated: in this order, each once."""
        listed = self._pick("endpoints")
        known = {name: endpoint.url for name, endpoint in self.app.config.endpoints.items()}
        items: list[Item] = []
        if not self._found:
            nobody = "looking for servers on this host …" if self._searching else "no server found on this host"
            items.append(Item("", nobody))
        items += [Item(*row) for row in views.server_rows(self._found, known, self._last.recent)]
        items.append(Item(TYPED, "a URL, typed below"))
        if self._machines:
            items.append(Item("", "SIMULATED, without a server or a GPU:"))
            items += [Item(*row) for row in views.machine_rows(self._machines)]
        usual = self._last.endpoint or (self._found[0].url if self._found else f"{SIMULATOR}moe-tp1")
        listed.set_items(items, listed.chosen if self._moved else usual)
        url = self.query_one("#url", Input)
        if self._machines and not self._moved and not url.value and listed.chosen != usual:
            url.value = usual

    def _list_models(self) -> None:
        """Those that the chosen endpoint lists, and a name of one's own."""
        server, machine, listed = self.server, self._machine(), self._pick("models")
        models = server.models if server else (machine.model,) if machine else ()
        items = [Item(model, plain(model)) for model in models] or [Item(_FIRST, "the first that it lists")]
        wanted = listed.chosen if listed.chosen == TYPED or listed.chosen in models else self._last.model
        listed.set_items([*items, Item(TYPED, "another name, typed below")], wanted)

    async def _discover(self) -> None:
        self._found = await asyncio.to_thread(catalogue.servers_here)
        self._searching = False
        self._list()
        self._look_soon()

    def _look_soon(self) -> None:
        """An address that nobody has found on this host is looked at when it has stood for a moment."""
        if self._typing is not None:
            self._typing.stop()
        endpoint = self.endpoint
        if endpoint and not endpoint.startswith(SIMULATOR) and self.server is None:
            self._typing = self.set_timer(_LOOK_AFTER_S, lambda: self._look(endpoint))

    def _look(self, url: str) -> None:
        self.run_worker(self._look_at(url), exclusive=True, group="look", exit_on_error=False)

    async def _look_at(self, url: str) -> None:
        try:
            self._looked[url] = await asyncio.to_thread(catalogue.look_at, url)
        except BadInput:
            return
        self._list_models()
        self.post_message(self.Changed())

    @on(Worker.StateChanged)
    def _failed(self, event: Worker.StateChanged) -> None:
        """A look that failed is no reason to leave, but one to be told."""
        if event.state is WorkerState.ERROR:
            self.app.say(f"cannot look there: {event.worker.error}")

    # keys

    @on(Pick.Moved)
    def _picked(self, event: Pick.Moved) -> None:
        event.stop()
        if event.pick.id == "endpoints":
            self._choose_anew()
        self.post_message(self.Changed())

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.id == "model" and event.value:
            self._pick("models").choose(TYPED)
        if event.input.id == "url" and event.value:
            self._pick("endpoints").choose(TYPED)
            self._choose_anew()
        self.post_message(self.Changed())

    def _choose_anew(self) -> None:
        self._moved = True
        self._list_models()
        self._look_soon()
