"""The setup screen: choose endpoint, model, workload and plan, and start a benchmark."""

from __future__ import annotations

import importlib
from itertools import starmap
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static

from swarmtui.client import catalogue
from swarmtui.client.choices import PlanKind, RunChoices
from swarmtui.client.request_builder import build_request
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.config import EndpointConfig
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.text import sanitize
from swarmtui.tui.base_screens import HelpTopic, KeyFooter
from swarmtui.tui.keys import KeyContext, bindings, in_footer, while_typing
from swarmtui.tui.lines import ljust, longest_fit, shorten
from swarmtui.tui.pick_list import PickItem, PickList
from swarmtui.tui.setup.endpoint import (
    FOLD,
    TYPED,
    Description,
    EndpointPart,
    Field,
    PartHeading,
    fit_list,
    frame_title,
)
from swarmtui.tui.setup.form import (
    LastSetup,
    applicable,
    default_plan,
    error_text,
    parse_max_tokens,
    plan_fields,
    read_setup,
    write_setup,
)
from swarmtui.tui.setup.last_time import LastTime
from swarmtui.tui.setup.view import (
    FIELD_HELP,
    PLAN_TEXTS,
    SLO_HINTS,
    field_hints,
    ready_text,
    server_lines,
    sweep_text,
    workload_lines,
)

if TYPE_CHECKING:
    from swarmtui.tui.app import SwarmApp

_PREFETCH_S = 1.0
_PLAN_FIELDS = (
    ("levels", "levels"), ("rate", "rate"), ("runs", "runs"), ("requests", "requests"), ("precision", "precision"),
    ("slo", "SLO"), ("max_tokens", "answers"), ("warmup", "warm-up"), ("canaries", "canaries"),
    ("too_long", "too long"),
)  # fmt: skip
# The text field that belongs to the last item of each list.
_TYPED_FIELDS = {"endpoints": "url", "models": "model", "workloads": "file"}
_LEAST_PREVIEW = 4
_PARTS = ("endpoints", "models", "workloads", "plans")


class SetupScreen(Screen[None]):
    key_context: KeyContext = "setup"
    app: SwarmApp
    AUTO_FOCUS = "#endpoints"
    COMPONENT_CLASSES: ClassVar[set[str]] = {"field--label"}
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("setup")]

    def __init__(self) -> None:
        super().__init__()
        self._setup = LastSetup()
        self._workloads: tuple[catalogue.WorkloadInfo, ...] = ()
        self._plan: PlanKind = "quick"
        self._unfolded = False
        self._agreed_to = ""
        # Whether the run starts as soon as the servers of this host are known.
        self._starts_later = False

    def compose(self) -> ComposeResult:
        self._setup = read_setup(self.app.config)
        choices = self._setup.choices
        yield Static(" swarmtui   New benchmark", markup=False, id="title")
        yield LastTime()
        with Horizontal(id="choices"):
            yield EndpointPart(self._setup)
            with VerticalScroll(id="workload-part", can_focus=False) as part:
                part.border_title = frame_title(3, "workload")
                yield PickList(id="workloads")
                yield Field("file", "file", hint="my-prompts.toml")
                yield Description(id="preview")
                yield PartHeading(4, "plan")
                yield PickList(id="plans")
                for name, label in _PLAN_FIELDS:
                    yield Field(name, label, str(getattr(choices, name) or ""))
                yield Field("hosts", "load from", choices.hosts, hint="this host; auto, ray://…")
        yield Static("", markup=False, id="problem")
        yield KeyFooter()

    def on_mount(self) -> None:
        self._update_footer(typing=False)
        if self._setup.choices.plan in PLAN_TEXTS:
            self._plan = self._setup.choices.plan
        self._pick_list("plans").set_items(starmap(PickItem, PLAN_TEXTS.items()), self._plan)
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        """Load what the first paint does not wait for."""
        self._workloads = catalogue.builtin_workloads()
        chosen = self._setup.choices.workload
        last = next((known for known in self._workloads if known.name == chosen), None)
        self._unfolded = last is not None and last.reproduction
        self._list_workloads(chosen)
        if self._pick_list("workloads").picked != chosen:
            self._entry("file").value = chosen
        # Import the next screen while the user is choosing.
        self.set_timer(_PREFETCH_S, lambda: importlib.import_module("swarmtui.tui.live.run_screen"))
        if self.focused is None:
            self._pick_list("endpoints").focus()
        self._endpoint_part.fill()
        self.query_one(LastTime).load()

    def _list_workloads(self, picked: str) -> None:
        """List the workloads for this width; those that reproduce published benchmarks are below one line."""
        pick = self._pick_list("workloads")
        shown = [workload for workload in self._workloads if self._unfolded or not workload.reproduction]
        items = [PickItem(one.name, sanitize(one.name), sanitize(one.description)) for one in shown]
        count = sum(workload.reproduction for workload in self._workloads)
        fold = PickItem(FOLD, f"{'▾' if self._unfolded else '▸'} {count} reproduced benchmarks")
        plain = len(self._workloads) - count
        pick.set_items([*items[:plain], fold, *items[plain:], PickItem(TYPED, "your own file, typed below")], picked)

    def on_resize(self) -> None:
        """Fit the texts to the new size, once the lists have theirs."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if self._workloads and self.is_attached:
            self._list_workloads(self._pick_list("workloads").picked)
            self._validate()

    def on_screen_resume(self) -> None:
        """A server may have been restarted with other flags during the run, or while another screen was open."""
        if self._workloads:
            self._endpoint_part.search_again()
            self.query_one(LastTime).load()

    @property
    def _endpoint_part(self) -> EndpointPart:
        return self.query_one(EndpointPart)

    def _pick_list(self, name: str) -> PickList:
        return self.query_one(f"#{name}", PickList)

    def _entry(self, name: str) -> Input:
        return self.query_one(f"#{name}", Input)

    @on(DescendantFocus)
    def _focus_moved(self, event: DescendantFocus) -> None:
        self._update_footer(typing=isinstance(event.widget, Input))
        self._validate()

    def _update_footer(self, typing: bool) -> None:
        """Show the keys; in a text field, where letters are text, only those that work there."""
        actions = self.app.keys.actions("setup")
        if typing:
            self.query_one(KeyFooter).show([action._replace(footer=True) for action in while_typing(actions)])
        else:
            self.query_one(KeyFooter).show(in_footer(actions, "sessions", "tuning_log", "probe_history"))

    # input

    @on(EndpointPart.Changed)
    def _endpoint_changed(self) -> None:
        starts = self._starts_later and not self._endpoint_part.is_waiting
        self._starts_later = self._starts_later and not starts
        self._validate()
        server = self._endpoint_part.server
        if starts and not self._endpoint_part.user_moved and (server is None or server.reachable):
            self.action_start()

    @on(OptionList.OptionHighlighted)
    def _list_moved(self, event: OptionList.OptionHighlighted) -> None:
        self._starts_later = False
        match event.option_list.id:
            case "plans":
                self._plan = cast(PlanKind, self._pick_list("plans").picked)
            case "workloads":
                self._pick_plan()
        self._validate()

    @on(OptionList.OptionSelected)
    def _confirmed(self, event: OptionList.OptionSelected) -> None:
        name = event.option_list.id or ""
        typed, picked = _TYPED_FIELDS.get(name), self._pick_list(name).picked
        if typed and picked == TYPED and not self._entry(typed).value:
            if typed == "url" and self._endpoint_part.is_waiting:
                self.action_start()
            else:
                self._entry(typed).focus()
        elif picked == FOLD and name == "endpoints":
            self._endpoint_part.toggle_simulators()
        elif picked == FOLD:
            self._unfolded = not self._unfolded
            self._list_workloads(FOLD)
            self._validate()
        else:
            self.action_start()

    @on(Input.Changed)
    def _field_changed(self, event: Input.Changed) -> None:
        if event.input.id == "file":
            if event.value:
                self._pick_list("workloads").pick(TYPED)
            self._pick_plan()
        self._validate()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_start()

    def _workload(self) -> str:
        picked = self._pick_list("workloads").picked
        return self._entry("file").value.strip() if picked == TYPED else "" if picked == FOLD else picked

    @property
    def _missing(self) -> str:
        """Tell the user what to do before everything is chosen; empty if a run can start."""
        if self._starts_later:
            return f"{self._endpoint_part.missing} then the run starts; Esc: not yet"
        if self._endpoint_part.missing:
            return self._endpoint_part.missing
        match self._pick_list("workloads").picked:
            case picked if picked == FOLD:
                return f"Enter {'hides' if self._unfolded else 'shows'} the reproductions"
            case picked if picked == TYPED and not self._workload():
                return "type the name of a workload file; Enter goes to the field"
        return ""

    def _workload_info(self) -> catalogue.WorkloadInfo | None:
        try:
            return catalogue.find_workload(self._workload()) if self._workloads else None
        except BadInput:
            return None

    def _pick_plan(self) -> None:
        """Pick the workload's own plan if it has one, otherwise the plan picked last."""
        workload = self._workload_info()
        self._pick_list("plans").pick("sweep" if workload is not None and workload.own_load else self._plan)

    def _choices(self) -> RunChoices:
        """Return what is chosen now; options without a field are those of [defaults]."""
        part = self._endpoint_part
        fields: dict[str, Any] = {
            name: self._entry(name).value.strip() or None for name in (*(name for name, _ in _PLAN_FIELDS), "api")
        }
        fields |= {
            "slo": fields["slo"] or "",
            "max_tokens": Mistakes().catch(parse_max_tokens, fields["max_tokens"] or ""),
        }
        return msgspec.structs.replace(
            self._setup.choices,
            endpoints=(part.endpoint,),
            model=part.model,
            workload=self._workload(),
            plan=cast(PlanKind, self._pick_list("plans").picked),
            server_flags=part.flags,
            **fields,
            **{name: self._entry(name).value for name in ("hosts", "label", "note")},
        )

    def _request(self, choices: RunChoices) -> RunRequest:
        """Raise BadInput, whose keys are those of fields, if something is wrong."""
        parse_max_tokens(self._entry("max_tokens").value.strip())
        endpoint = self._endpoint_part.configured or EndpointConfig(url=choices.endpoints[0])
        return build_request(applicable(choices), (endpoint,), self.app.session_root)

    def _validate(self) -> None:
        """Show the first error, or what Enter starts."""
        if not self._workloads:
            return
        choices, workload = self._choices(), self._workload_info()
        width = self.app.size.width
        self._endpoint_part.describe()
        part = self._endpoint_part
        flags = part.server.flags if part.server is not None else None
        self.query_one(LastTime).show_endpoint(part.endpoint, part.model, flags)
        status = self.query_one("#problem", Static)
        missing = self._missing
        mistakes = Mistakes()
        request = None if missing else mistakes.catch(self._request, choices)
        if request is None:
            text, bad = missing or f"✖ {sanitize(error_text(mistakes.found[0]))}", not missing
            plan = Mistakes().catch(default_plan, choices.workload, choices.plan)
            plan = plan or (workload.plan if workload is not None else None)
        else:
            server = self._endpoint_part.server
            bad = server is not None and not server.reachable
            text = ready_text(request, bad, width)
            if self.focused is not None and self.focused.id == "slo":
                text = longest_fit(tuple(f"● {hint}" for hint in SLO_HINTS), width - 1)
            plan = request.plan
        self._update_fields(choices.plan, workload, plan)
        status.update(ljust(f" {shorten(text, width - 1)}", width))
        status.set_class(bad, "-bad")
        preview = self.query_one("#preview", Description)
        fit_list(
            self.query_one("#workload-part", VerticalScroll), self._pick_list("workloads"), preview, _LEAST_PREVIEW
        )
        limit = None if plan is None else plan.max_tokens
        preview.show(lambda width, height: workload_lines(workload, width, max(4, height), limit) if workload else [])

    def _update_fields(self, kind: PlanKind, workload: catalogue.WorkloadInfo | None, plan: Plan | None) -> None:
        """Show the fields that apply to the plan; an empty one shows its default."""
        applicable = plan_fields(kind, workload.plan.load if workload is not None else Closed())
        for name, _ in _PLAN_FIELDS:
            self._entry(name).display = name in applicable
        if plan is not None:
            for name, hint in field_hints(plan, kind).items():
                self._entry(name).placeholder = hint
        plans = self._pick_list("plans")
        texts = PLAN_TEXTS | {"sweep": sweep_text(workload)}
        plans.set_items(starmap(PickItem, texts.items()), plans.picked)

    # keys

    def help_topic(self) -> HelpTopic:
        """Explain the field or the list with the cursor; the details are what is known of its server."""
        name = self.focused.id or "" if self.focused is not None else ""
        row, server = FIELD_HELP.get(name), self._endpoint_part.server
        known = " · ".join(server_lines(server, 10_000)) if name == "endpoints" and server is not None else ""
        return HelpTopic("Here", (row,) if row else (), (("server", known),) if known else ())

    def action_start(self) -> None:
        """Start the run, or let it start when the servers of this host are known."""
        if self._endpoint_part.is_waiting:
            self._starts_later = True
            self._validate()
            return
        choices = self._choices()
        request = None if self._missing else Mistakes().catch(self._request, choices)
        if request is None:
            self._validate()
            return
        server = self._endpoint_part.server
        if server is not None and server.user and self._agreed_to != server.url:
            self._agreed_to = server.url
            asked = f"? {sanitize(server.user)} started this server: Enter again sends load to it"
            self.query_one("#problem", Static).update(ljust(f" {asked}", self.app.size.width))
            return
        self._setup = LastSetup(choices=choices, recent=(*choices.endpoints, *self._setup.recent))
        write_setup(self._setup, self.app.config)
        # They are about this run: the next one may be of another server, or of other flags.
        for name in ("label", "note", "flags"):
            self._entry(name).value = ""
        # When the user comes back from the run, keys must not be typed into a field.
        self._pick_list("endpoints").focus()
        self.app.open_run(request)

    def action_refresh(self) -> None:
        self._endpoint_part.rescan()

    def action_next_part(self) -> None:
        self.focus_next()

    def action_previous_part(self) -> None:
        self.focus_previous()

    def action_last_time(self) -> None:
        line = self.query_one(LastTime)
        if line.display:
            line.open()
        else:
            self.app.toast("no result of this endpoint is saved; L lists all sessions")

    def action_part(self, number: int) -> None:
        self._pick_list(_PARTS[number - 1]).focus()

    def action_again(self) -> None:
        """Say where a session is repeated: here it would not be seen which one."""
        self.app.toast("R repeats a session from its result: L lists the sessions, Enter opens one")

    def action_sessions(self) -> None:
        self.app.open_sessions()

    def action_back(self) -> None:
        """Do not start later, or leave a text field; from a list, return to the run below this screen."""
        if self._starts_later:
            self._starts_later = False
            self._validate()
        elif isinstance(self.focused, Input) or len(self.app.screen_stack) == 1:
            self._pick_list("endpoints").focus()
        else:
            self.dismiss()
