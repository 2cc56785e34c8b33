"""What to run: endpoint, model, workload and plan; Enter starts."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from swarmtui.conductor import catalogue
from swarmtui.model.order import SIMULATOR
from swarmtui.model.schema import BadInput
from swarmtui.model.telemetry import Discovered
from swarmtui.text import plain
from swarmtui.tui.choice import Choice, Kind, fields_of, make_order
from swarmtui.tui.config import Last, read_last, write_last
from swarmtui.tui.keys import Where, bindings, while_typing
from swarmtui.tui.paint import wrapped
from swarmtui.tui.views import setup as views
from swarmtui.tui.widgets.footer import KeyLine
from swarmtui.tui.widgets.pick import Item, Pick

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_TYPED = "typed"
_LOOK_AFTER_S = 0.6
_READY_S = 1.0
_FIELDS = (("levels", "levels"), ("rate", "rate"), ("runs", "runs"), ("requests", "requests"), ("warmup", "warm-up"))
# What is typed goes with the last line of the list above it.
_BESIDE = {"url": "endpoints", "model": "models", "file": "workloads"}


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
        self._tasks: tuple[catalogue.Task, ...] = ()
        self._machines: tuple[catalogue.Machine, ...] = ()
        self._moved = False
        self._plan: Kind = self._last.plan if self._last.plan in views.KINDS else "manual"

    def compose(self) -> ComposeResult:
        yield Static(" swarmtui   what shall be measured?", markup=False, id="title")
        with Horizontal(id="choices"):
            with VerticalScroll(id="where", can_focus=False):
                yield Static("── endpoint ", markup=False, classes="rule")
                yield Pick(id="endpoints")
                yield Static("", markup=False, id="about")
                yield from self._field("url", "URL", "", "http://127.0.0.1:8000")
                yield Static("── model ", markup=False, classes="rule")
                yield Pick(id="models")
                yield from self._field("model", "name", "", "another name")
                yield from self._field("label", "label", "", "a name for this session")
                yield from self._field("note", "note", "", "what is special about it")
                yield from self._field("flags", "flags", "", "how the server was started")
            with VerticalScroll(id="what", can_focus=False):
                yield Static("── workload ", markup=False, classes="rule")
                yield Pick(id="workloads")
                yield Static("", markup=False, id="preview")
                yield from self._field("file", "file", "", "a workload of your own, .toml")
                yield Static("── plan ", markup=False, classes="rule")
                yield Pick([Item(kind, words) for kind, words in views.KINDS.items()], id="plans")
                for name, label in _FIELDS:
                    yield from self._field(name, label, getattr(self._last, name), "")
        yield Static("", markup=False, id="problem")
        yield KeyLine()

    def _field(self, name: str, label: str, value: str, hint: str) -> ComposeResult:
        with Horizontal(classes="field", id=f"of-{name}"):
            yield Static(label, markup=False, classes="name")
            entry = Input(value, id=name, compact=True, placeholder=hint)
            entry.cursor_blink = False
            yield entry

    def on_mount(self) -> None:
        self.query_one(KeyLine).show(self.app.keys.actions("setup"))
        self._pick("plans").choose(self._plan)
        self._list_endpoints()
        self._list_models()
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """What needs more imports than the first picture can wait for."""
        self._tasks = catalogue.tasks()
        lines = views.in_columns([(task.name, task.description) for task in self._tasks])
        items = [Item(task.name, line) for task, line in zip(self._tasks, lines, strict=True)]
        items.append(Item(_TYPED, "a file of your own, typed below"))
        self._pick("workloads").set_items(items, self._last.workload)
        if self._pick("workloads").chosen != self._last.workload:
            self._entry("file").value = self._last.workload
        self._machines = catalogue.machines()
        # The screen that comes next is made ready while nobody waits for it.
        self.set_timer(_READY_S, lambda: importlib.import_module("swarmtui.tui.screens.run"))
        if self.focused is None:
            self._pick("endpoints").focus()
        self.action_refresh()

    def _pick(self, name: str) -> Pick:
        return self.query_one(f"#{name}", Pick)

    def _entry(self, name: str) -> Input:
        return self.query_one(f"#{name}", Input)

    @on(DescendantFocus)
    def _focused(self, event: DescendantFocus) -> None:
        """In a field letters are text: only the keys that still mean something are offered there."""
        actions = self.app.keys.actions("setup")
        typing = isinstance(event.widget, Input)
        shown = [action._replace(footer=True) for action in while_typing(actions)] if typing else actions
        self.query_one(KeyLine).show(shown)

    # endpoints and their models

    def action_refresh(self) -> None:
        self._searching = True
        self._list_endpoints()
        self.run_worker(self._discover(), exclusive=True, group="discover", exit_on_error=False)

    async def _discover(self) -> None:
        self._found = await asyncio.to_thread(catalogue.servers_here)
        self._searching = False
        self._list_endpoints()
        self._list_models()
        self._judge()

    def _list_endpoints(self) -> None:
        """Found here, configured, recent, typed, simulated: in this order, each once."""
        listed = self._pick("endpoints")
        known = {name: endpoint.url for name, endpoint in self.app.config.endpoints.items()}
        items: list[Item] = []
        if not self._found:
            nobody = "looking for servers on this host …" if self._searching else "no server found on this host"
            items.append(Item("", nobody))
        items += [Item(*row) for row in views.server_rows(self._found, known, self._last.recent)]
        items.append(Item(_TYPED, "a URL, typed below"))
        if self._machines:
            items.append(Item("", "SIMULATED, without a server or a GPU:"))
            items += [Item(*row) for row in views.machine_rows(self._machines)]
        usual = self._last.endpoint or (self._found[0].url if self._found else f"{SIMULATOR}moe-tp1")
        listed.set_items(items, listed.chosen if self._moved else usual)

    def _endpoint(self) -> str:
        chosen = self._pick("endpoints").chosen
        return self._entry("url").value.strip() if chosen == _TYPED else chosen

    def _machine(self) -> catalogue.Machine | None:
        name = self._endpoint().removeprefix(SIMULATOR).partition("?")[0]
        simulated = self._endpoint().startswith(SIMULATOR)
        return next((machine for machine in self._machines if simulated and machine.name == name), None)

    def _server(self) -> Discovered | None:
        endpoint = self._endpoint()
        here = next((server for server in self._found if server.url == endpoint), None)
        return here or self._looked.get(endpoint)

    def _list_models(self) -> None:
        """Those that the chosen endpoint lists, and a name of one's own."""
        server, machine, listed = self._server(), self._machine(), self._pick("models")
        models = server.models if server else (machine.model,) if machine else ()
        items = [Item(model, plain(model)) for model in models] or [Item("first", "the first that it lists")]
        wanted = listed.chosen if listed.chosen == _TYPED or listed.chosen in models else self._last.model
        listed.set_items([*items, Item(_TYPED, "another name, typed below")], wanted)

    def _model(self) -> str:
        chosen = self._pick("models").chosen
        if chosen == _TYPED:
            return self._entry("model").value
        known = next((known for known in self.app.config.endpoints.values() if known.url == self._endpoint()), None)
        return chosen if chosen != "first" else known.model or "" if known else ""

    def _flags_unseen(self) -> bool:
        """Of a server on another host, or in a container, only people know how it was started."""
        server = self._server()
        return not self._endpoint().startswith(SIMULATOR) and not (server and server.flags)

    def _look_soon(self) -> None:
        """An address that nobody has found on this host is looked at when it has stood for a moment."""
        if self._typing is not None:
            self._typing.stop()
        endpoint = self._endpoint()
        if endpoint and not endpoint.startswith(SIMULATOR) and self._server() is None:
            self._typing = self.set_timer(_LOOK_AFTER_S, lambda: self._look(endpoint))

    def _look(self, url: str) -> None:
        self.run_worker(self._look_at(url), exclusive=True, group="look", exit_on_error=False)

    async def _look_at(self, url: str) -> None:
        try:
            self._looked[url] = await asyncio.to_thread(catalogue.look_at, url)
        except BadInput:
            return
        self._list_models()
        self._judge()

    @on(Worker.StateChanged)
    def _failed(self, event: Worker.StateChanged) -> None:
        """A look that failed is no reason to leave, but one to be told."""
        if event.state is WorkerState.ERROR:
            self.app.say(f"cannot look there: {event.worker.error}")

    # what is typed and chosen

    @on(Pick.Moved)
    def _picked(self, event: Pick.Moved) -> None:
        match event.pick.id:
            case "endpoints":
                self._moved = True
                self._list_models()
                self._look_soon()
            case "plans":
                self._plan = cast(Kind, event.pick.chosen)
            case "workloads":
                self._suit_plan()
        self._judge()

    @on(Pick.Taken)
    def _taken(self, event: Pick.Taken) -> None:
        typed = next(name for name, above in {**_BESIDE, "": event.pick.id}.items() if above == event.pick.id)
        if typed and event.pick.chosen == _TYPED and not self._entry(typed).value:
            self._entry(typed).focus()
        else:
            self.action_start()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        name = event.input.id or ""
        if name in _BESIDE and event.value:
            self._pick(_BESIDE[name]).choose(_TYPED)
        if name == "url" and event.value:
            self._moved = True
            self._list_models()
            self._look_soon()
        if name == "file":
            self._suit_plan()
        self._judge()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_start()

    def _workload(self) -> str:
        chosen = self._pick("workloads").chosen
        return self._entry("file").value.strip() if chosen == _TYPED else chosen

    def _chosen_task(self) -> catalogue.Task | None:
        try:
            return catalogue.workload(self._workload()) if self._tasks else None
        except BadInput:
            return None

    def _suit_plan(self) -> None:
        """A workload that says how it wants to be asked is asked so, until somebody chooses otherwise."""
        task = self._chosen_task()
        self._pick("plans").choose("sweep" if task is not None and task.own_load else self._plan)

    def _choice(self) -> Choice:
        def typed(name: str) -> str:
            return self._entry(name).value

        endpoint = self._endpoint()
        known = next((known for known in self.app.config.endpoints.values() if known.url == endpoint), None)
        return Choice(
            endpoint=endpoint,
            model=self._model(),
            workload=self._workload(),
            plan=cast(Kind, self._pick("plans").chosen),
            levels=typed("levels"),
            rate=typed("rate"),
            runs=typed("runs"),
            requests=typed("requests"),
            warmup=typed("warmup"),
            label=typed("label"),
            note=typed("note"),
            flags=typed("flags") if self._flags_unseen() else "",
            known=known,
        )

    def _judge(self) -> None:
        """Says at once what is wrong, or what Enter would do."""
        if not self._tasks:
            return
        choice, task = self._choice(), self._chosen_task()
        self.query_one("#of-flags").display = self._flags_unseen()
        self._offer_fields(choice.plan, task)
        words = self.query_one("#problem", Static)
        try:
            order = make_order(choice, self.app.session_root_or_default)
        except BadInput as problem:
            words.update(f" ✖ {plain(str(problem))}")
            words.set_class(True, "-bad")
        else:
            server = self._server()
            absent = server is not None and not server.reachable
            does = "does not answer now; Enter tries all the same." if absent else "Enter starts."
            words.update(f" {'▲' if absent else '●'} {does} {plain(choice.endpoint)}: {views.plan_words(order.plan)}")
            words.set_class(absent, "-bad")
        self._preview(task)

    def _offer_fields(self, plan: Kind, task: catalogue.Task | None) -> None:
        """Only what there is to say of this plan; in an empty field stands what the workload says itself."""
        own = task.plan if task is not None else None
        offered = fields_of(plan, own.load if own else "closed")
        for name, _ in _FIELDS:
            self.query_one(f"#of-{name}").display = name in offered
        if own is not None:
            for name, hint in views.field_hints(plan, own).items():
                self._entry(name).placeholder = hint
        plans = self._pick("plans")
        kinds = views.KINDS | {"sweep": views.sweep_words(task)}
        plans.set_items([Item(kind, words) for kind, words in kinds.items()], plans.chosen)

    def _preview(self, task: catalogue.Task | None) -> None:
        width = max(20, self.app.size.width // 2 - 4)
        preview, about = self.query_one("#preview", Static), self.query_one("#about", Static)
        if task is not None:
            preview.update("\n".join(views.task_words(task, width, max(4, preview.size.height))))
        server, machine = self._server(), self._machine()
        words = views.found_words(server) if server else plain(machine.description) if machine else ""
        about.update("\n".join(wrapped(words, width)[:2]))

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
        self._pick("endpoints").focus()
