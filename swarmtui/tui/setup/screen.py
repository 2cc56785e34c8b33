"""What to run: endpoint, model, workload and plan; Enter starts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.screen import Screen
from textual.widgets import Input, Static

from swarmtui.client import catalogue
from swarmtui.model.plan import Plan
from swarmtui.model.schema import BadInput
from swarmtui.text import plain
from swarmtui.tui.config import Last, first_choices, read_last, write_last
from swarmtui.tui.footer import KeyLine
from swarmtui.tui.keys import Where, bindings, shown, while_typing
from swarmtui.tui.lines import left
from swarmtui.tui.pick_list import Item, Pick
from swarmtui.tui.setup import view as views
from swarmtui.tui.setup.choice import Choice, Kind, fields_of, make_order
from swarmtui.tui.setup.endpoint import TYPED, EndpointPart
from swarmtui.tui.setup.field import field

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_READY_S = 1.0
_FIELDS = (("levels", "levels"), ("rate", "rate"), ("runs", "runs"), ("requests", "requests"), ("warmup", "warm-up"))
# What is typed goes with the last line of the list above it.
_BESIDE = {"endpoints": "url", "models": "model", "workloads": "file"}
_PARTS = ("endpoints", "models", "workloads", "plans")


class SetupScreen(Screen[None]):
    where: Where = "setup"
    app: SwarmApp
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("setup")]

    def __init__(self) -> None:
        super().__init__()
        self._last = read_last()
        self._tasks: tuple[catalogue.Task, ...] = ()
        self._plan: Kind = "manual"

    def compose(self) -> ComposeResult:
        self._last = first_choices(self._last, self.app.config)
        yield Static(" swarmtui   what shall be measured?", markup=False, id="title")
        with Horizontal(id="choices"):
            yield EndpointPart(self._last)
            with VerticalScroll(id="what", can_focus=False):
                yield Static("── 3 workload ", markup=False, classes="rule")
                yield Pick(id="workloads")
                yield Static("", markup=False, id="preview")
                yield from field("file", "file", hint="a workload of your own, .toml")
                yield Static("── 4 plan ", markup=False, classes="rule")
                yield Pick([Item(kind, words) for kind, words in views.KINDS.items()], id="plans")
                for name, label in _FIELDS:
                    yield from field(name, label, getattr(self._last, name))
        yield Static("", markup=False, id="problem")
        yield KeyLine()

    def on_mount(self) -> None:
        self._offer_keys(typing=False)
        if self._last.plan in views.KINDS:
            self._plan = self._last.plan
        self._pick("plans").choose(self._plan)
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """What needs more imports than the first picture can wait for."""
        self._tasks = catalogue.tasks()
        lines = views.in_columns([(task.name, task.description) for task in self._tasks])
        items = [Item(task.name, line) for task, line in zip(self._tasks, lines, strict=True)]
        items.append(Item(TYPED, "a file of your own, typed below"))
        self._pick("workloads").set_items(items, self._last.workload)
        if self._pick("workloads").chosen != self._last.workload:
            self._entry("file").value = self._last.workload
        # The screen that comes next is made ready while nobody waits for it.
        self.set_timer(_READY_S, lambda: importlib.import_module("swarmtui.tui.live.run_screen"))
        if self.focused is None:
            self._pick("endpoints").focus()
        self._part.fill()

    @property
    def _part(self) -> EndpointPart:
        return self.query_one(EndpointPart)

    def _pick(self, name: str) -> Pick:
        return self.query_one(f"#{name}", Pick)

    def _entry(self, name: str) -> Input:
        return self.query_one(f"#{name}", Input)

    @on(DescendantFocus)
    def _focused(self, event: DescendantFocus) -> None:
        self._offer_keys(typing=isinstance(event.widget, Input))

    def _offer_keys(self, typing: bool) -> None:
        """In a field letters are text: only the keys that still mean something are offered there."""
        actions = self.app.keys.actions("setup")
        if typing:
            self.query_one(KeyLine).show([action._replace(footer=True) for action in while_typing(actions)])
        else:
            self.query_one(KeyLine).show(shown(actions, "sessions", "tuning_log", "probe_history"))

    # what is typed and chosen

    @on(EndpointPart.Changed)
    def _elsewhere(self) -> None:
        self._judge()

    @on(Pick.Moved)
    def _picked(self, event: Pick.Moved) -> None:
        match event.pick.id:
            case "plans":
                self._plan = cast(Kind, event.pick.chosen)
            case "workloads":
                self._suit_plan()
        self._judge()

    @on(Pick.Taken)
    def _taken(self, event: Pick.Taken) -> None:
        typed = _BESIDE.get(event.pick.id or "")
        if typed and event.pick.chosen == TYPED and not self._entry(typed).value:
            self._entry(typed).focus()
        else:
            self.action_start()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.input.id == "file":
            if event.value:
                self._pick("workloads").choose(TYPED)
            self._suit_plan()
        self._judge()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_start()

    def _workload(self) -> str:
        chosen = self._pick("workloads").chosen
        return self._entry("file").value.strip() if chosen == TYPED else chosen

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
        part = self._part
        return Choice(
            endpoint=part.endpoint,
            model=part.model,
            workload=self._workload(),
            plan=cast(Kind, self._pick("plans").chosen),
            **{name: self._entry(name).value for name, _ in (*_FIELDS, ("label", ""), ("note", ""))},
            flags=part.flags,
            known=part.known,
            defaults=self.app.config.defaults,
        )

    def _judge(self) -> None:
        """Says at once what is wrong, or what Enter would do."""
        if not self._tasks:
            return
        choice, task = self._choice(), self._chosen_task()
        width = self.app.size.width
        self._part.describe(max(20, width // 2 - 4))
        words = self.query_one("#problem", Static)
        try:
            order = make_order(choice, self.app.session_root_or_default)
        except BadInput as problem:
            words.update(left(f" ✖ {plain(str(problem))}", width))
            words.set_class(True, "-bad")
            self._offer_fields(choice.plan, task, task.plan if task is not None else None)
        else:
            server = self._part.server
            absent = server is not None and not server.reachable
            words.update(left(f" {views.ready_words(order, absent, width)}", width))
            words.set_class(absent, "-bad")
            self._offer_fields(choice.plan, task, order.plan)
        if task is not None:
            preview = self.query_one("#preview", Static)
            told = views.task_words(task, max(20, width // 2 - 4), max(4, preview.size.height))
            preview.update("\n".join(told))

    def _offer_fields(self, kind: Kind, task: catalogue.Task | None, plan: Plan | None) -> None:
        """Only what there is to say of this plan; in an empty field stands what is taken for it."""
        offered = fields_of(kind, task.plan.load if task is not None else "closed")
        for name, _ in _FIELDS:
            self.query_one(f"#of-{name}").display = name in offered
        if plan is not None:
            for name, hint in views.field_hints(plan, kind).items():
                self._entry(name).placeholder = hint
        plans = self._pick("plans")
        kinds = views.KINDS | {"sweep": views.sweep_words(task)}
        plans.set_items([Item(kind, words) for kind, words in kinds.items()], plans.chosen)

    # keys

    def action_start(self) -> None:
        choice = self._choice()
        try:
            order = make_order(choice, self.app.session_root_or_default)
        except BadInput:
            self._judge()
            return
        names = (name for name in Last.__struct_fields__ if name != "recent")
        recent = (choice.endpoint, *self._last.recent)
        self._last = Last(**{name: getattr(choice, name) for name in names}, recent=recent)
        write_last(self._last, self.app.config)
        # Back from the run keys mean what they say, and nothing is typed by accident.
        self._pick("endpoints").focus()
        self.app.open_run(order)

    def action_refresh(self) -> None:
        self._part.look_again()

    def action_next_part(self) -> None:
        self.focus_next()

    def action_part_before(self) -> None:
        self.focus_previous()

    def action_part(self, number: int) -> None:
        self._pick(_PARTS[number - 1]).focus()

    def action_sessions(self) -> None:
        self.app.open_sessions()

    def action_back(self) -> None:
        """From a field to the list of endpoints, and from there to the run over which this was opened."""
        if isinstance(self.focused, Input) or len(self.app.screen_stack) == 1:
            self._pick("endpoints").focus()
        else:
            self.dismiss()
