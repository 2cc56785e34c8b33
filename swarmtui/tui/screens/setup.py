"""What to run: endpoint, workload and plan; Enter starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widgets import Input, Static

from swarmtui.conductor import catalogue
from swarmtui.model.order import SIMULATOR
from swarmtui.model.schema import BadInput
from swarmtui.model.telemetry import Discovered
from swarmtui.text import plain
from swarmtui.tui.choice import KINDS, Choice, make_order
from swarmtui.tui.config import Last, read_last, write_last
from swarmtui.tui.keys import Where, bindings
from swarmtui.tui.paint import wrapped
from swarmtui.tui.widgets.footer import KeyLine
from swarmtui.tui.widgets.pick import Item, Pick

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_TYPED = "typed"
_LOOK_AFTER_S = 0.6
_FIELDS = (
    ("levels", "levels"), ("runs", "runs"), ("requests", "requests"), ("warmup", "warm-up"),
    ("label", "label"), ("note", "note"),
)  # fmt: skip


class SetupScreen(Screen[None]):
    where: Where = "setup"
    app: SwarmApp
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("setup")]

    def __init__(self) -> None:
        super().__init__()
        self._last = read_last()
        self._found: tuple[Discovered, ...] = ()
        self._searching = True
        self._looked: dict[str, Discovered] = {}
        self._typing: Timer | None = None
        self._machines: tuple[catalogue.Machine, ...] = ()
        self._moved = False

    def compose(self) -> ComposeResult:
        yield Static(" swarmtui   what shall be measured?", markup=False, id="title")
        with Horizontal(id="choices"):
            with Vertical(id="where"):
                yield Static("── endpoint ", markup=False, classes="rule")
                yield Pick(id="endpoints")
                yield Static("", markup=False, id="about")
                yield from self._field("url", "URL", "")
                yield from self._field("model", "model", self._last.model)
            with Vertical(id="what"):
                yield Static("── workload ", markup=False, classes="rule")
                yield Pick(id="workloads")
                yield Static("", markup=False, id="preview")
                yield Static("── plan ", markup=False, classes="rule")
                yield Pick([Item(kind, words) for kind, words in KINDS.items()], id="plans")
                for name, label in _FIELDS:
                    yield from self._field(name, label, getattr(self._last, name, ""))
        yield Static("", markup=False, id="problem")
        yield KeyLine()

    def _field(self, name: str, label: str, value: str) -> ComposeResult:
        with Horizontal(classes="field"):
            yield Static(label, markup=False, classes="name")
            entry = Input(value, id=name, compact=True)
            entry.cursor_blink = False
            yield entry

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(self.app.keys.actions("setup"))
        self.query_one("#url", Input).placeholder = "http://127.0.0.1:8000"
        self.query_one("#model", Input).placeholder = "the first that it lists"
        self.query_one("#plans", Pick).choose(self._last.plan)
        self._list_endpoints()
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """What needs more imports than the first picture can wait for."""
        tasks = [Item(task.name, f"{task.name:<13} {plain(task.description)}") for task in catalogue.tasks()]
        self.query_one("#workloads", Pick).set_items(tasks, self._last.workload)
        self._machines = catalogue.machines()
        self.query_one("#endpoints", Pick).focus()
        self.action_refresh()

    # endpoints

    def action_refresh(self) -> None:
        self._searching = True
        self._list_endpoints()
        self.run_worker(self._discover(), exclusive=True, group="discover", exit_on_error=False)

    async def _discover(self) -> None:
        self._found = await asyncio.to_thread(catalogue.servers_here)
        self._searching = False
        self._list_endpoints()
        self._judge()

    def _list_endpoints(self) -> None:
        """Found here, configured, recent, typed, simulated: in this order, each once."""
        listed = self.query_one("#endpoints", Pick)
        rows: dict[str, str] = {server.url: _words(server) for server in self._found}
        for name, known in self.app.config.endpoints.items():
            rows.setdefault(known.url, f"{plain(name)}  {plain(known.url)}")
        for url in self._last.recent:
            if not url.startswith(SIMULATOR):
                rows.setdefault(url, f"{plain(url)}  recent")
        items = [Item(url, text) for url, text in rows.items()]
        if not self._found:
            nobody = "looking for servers on this host …" if self._searching else "no server found on this host"
            items.insert(0, Item("", nobody))
        items.append(Item(_TYPED, "a URL, typed below (tab)"))
        for machine in self._machines:
            items.append(Item(SIMULATOR + machine.name, f"{SIMULATOR}{machine.name}  SIMULATED, {_seats(machine)}"))
        usual = self._last.endpoint or (self._found[0].url if self._found else f"{SIMULATOR}moe-tp1")
        listed.set_items(items, listed.chosen if self._moved else usual)

    def _endpoint(self) -> str:
        chosen = self.query_one("#endpoints", Pick).chosen
        return self.query_one("#url", Input).value.strip() if chosen == _TYPED else chosen

    # what is typed and chosen

    @on(Pick.Moved)
    def _picked(self, event: Pick.Moved) -> None:
        if event.pick.id == "endpoints":
            self._moved = True
            self._suggest_models()
        self._judge()

    @on(Pick.Taken)
    def _taken(self, event: Pick.Taken) -> None:
        if event.pick.chosen == _TYPED and not self.query_one("#url", Input).value:
            self.query_one("#url", Input).focus()
        else:
            self.action_start()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.input.id == "url" and event.value:
            self._moved = True
            self.query_one("#endpoints", Pick).choose(_TYPED)
            if self._typing is not None:
                self._typing.stop()
            self._typing = self.set_timer(_LOOK_AFTER_S, self._look)
        self._judge()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_start()

    def _look(self) -> None:
        url = self.query_one("#url", Input).value.strip()
        self.run_worker(self._look_at(url), exclusive=True, group="look", exit_on_error=False)

    async def _look_at(self, url: str) -> None:
        try:
            self._looked[url] = await asyncio.to_thread(catalogue.look_at, url)
        except BadInput:
            return
        self._suggest_models()
        self._judge()

    def _server(self) -> Discovered | None:
        endpoint = self._endpoint()
        here = next((server for server in self._found if server.url == endpoint), None)
        return here or self._looked.get(endpoint)

    def _suggest_models(self) -> None:
        server = self._server()
        models = [plain(model) for model in server.models] if server else []
        entry = self.query_one("#model", Input)
        entry.suggester = SuggestFromList(models, case_sensitive=False) if models else None
        entry.placeholder = ", ".join(models) or "the first that it lists"

    def _choice(self) -> Choice:
        def picked(name: str) -> str:
            return self.query_one(f"#{name}", Pick).chosen

        def typed(name: str) -> str:
            return self.query_one(f"#{name}", Input).value

        endpoint = self._endpoint()
        known = next((known for known in self.app.config.endpoints.values() if known.url == endpoint), None)
        return Choice(
            endpoint=endpoint,
            model=typed("model") or (known.model or "" if known else ""),
            workload=picked("workloads") or self._last.workload,
            plan=picked("plans"),
            levels=typed("levels"),
            runs=typed("runs"),
            requests=typed("requests"),
            warmup=typed("warmup"),
            label=typed("label"),
            note=typed("note"),
            api_key_env=known.api_key_env if known else None,
        )

    def _judge(self) -> None:
        """Says at once what is wrong, or that nothing is."""
        choice = self._choice()
        self.query_one("#levels", Input).disabled = choice.plan != "sweep"
        words = self.query_one("#problem", Static)
        try:
            make_order(choice, self.app.session_root_or_default)
        except BadInput as problem:
            words.update(f" ✖ {plain(str(problem))}")
            words.set_class(True, "-bad")
        else:
            server = self._server()
            absent = server is not None and not server.reachable
            does = "does not answer now; Enter tries all the same." if absent else "Enter starts."
            kind = KINDS[choice.plan]  # type: ignore[index]
            words.update(f" {'▲' if absent else '●'} {plain(choice.endpoint)}: {kind}. {does}")
            words.set_class(absent, "-bad")
        self._preview(choice)

    def _preview(self, choice: Choice) -> None:
        width = max(20, self.app.size.width // 2 - 4)
        task = next((task for task in catalogue.tasks() if task.name == choice.workload), None)
        if task is not None:
            count = "made as needed" if task.prompts is None else f"{task.prompts} prompts"
            facts = f"{task.kind}, {count}; {task.input} in, {task.output} out; cache {task.cache}"
            sample = wrapped(f"“{plain(task.sample[:400])}”", width)[:2]
            self.query_one("#preview", Static).update("\n".join([*wrapped(facts, width)[:2], *sample]))
        server = self._server()
        machine = next((m for m in self._machines if SIMULATOR + m.name == choice.endpoint), None)
        about = _words(server) if server else plain(machine.description) if machine else ""
        self.query_one("#about", Static).update("\n".join(wrapped(about, width)[:2]))

    def action_start(self) -> None:
        choice = self._choice()
        try:
            order = make_order(choice, self.app.session_root_or_default)
        except BadInput:
            self._judge()
            return
        names = (name for name in Last.__struct_fields__ if name != "recent")
        last = Last(**{name: getattr(choice, name) for name in names}, recent=self._last.recent)
        write_last(last)
        self._last = msgspec.structs.replace(last, recent=(choice.endpoint, *last.recent))
        self.app.open_run(order)

    def action_sessions(self) -> None:
        self.app.open_sessions()

    def action_back(self) -> None:
        """From a field to the list of endpoints."""
        self.query_one("#endpoints", Pick).focus()


def _seats(machine: catalogue.Machine) -> str:
    each = "1 seat" if machine.seats == 1 else f"{machine.seats} seats"
    return f"{machine.replicas} × {each}" if machine.replicas > 1 else each


def _words(server: Discovered) -> str:
    if not server.reachable:
        return f"{plain(server.url)}  ✖ {plain(server.problem) or 'does not answer'}"
    parts = [plain(server.engine), plain(server.models[0]) if server.models else ""]
    parts.append(f"{server.seats} seats" if server.seats else "")
    parts.append(f"▲ {plain(server.problem)}" if server.problem else "")
    return f"{plain(server.url).removeprefix('http://')}  " + ", ".join(part for part in parts if part)
