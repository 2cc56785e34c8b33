"""The table of key actions, from which bindings, footer, help and command palette are made."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from textual.binding import Binding

from swarmtui.tui.live.panels import PANELS

KeyContext = Literal[
    "live", "replay", "watch", "result", "setup", "stream", "sessions", "tune", "tunes", "log", "probes", "page",
    "compare", "pick", "everywhere",
]  # fmt: skip
# The keys of one screen come before those that several have.
Group = Literal["Load", "Replay", "Setup", "Sessions", "Tune", "Log", "Probes", "Session", "View", "Move", "Program"]
GROUPS: tuple[Group, ...] = get_args(Group)


class Action(NamedTuple):
    """One action: `id` is also the name of its method (`action_…`) and its key under [keymap] in config.toml.

    `footer` and `after_end` put it into the last line of the screen, during a run and after it. `when` limits the
    action to one of these, so that another one may have the same key.
    """

    id: str
    keys: str
    shown: str
    label: str
    tooltip: str
    group: Group
    contexts: tuple[KeyContext, ...]
    footer: bool = False
    after_end: bool = False
    when: Literal["always", "before_end", "after_end"] = "always"

    @property
    def full_name(self) -> str:
        """Name the action with the object that has its method, as Textual does."""
        return f"{'app' if 'everywhere' in self.contexts else 'screen'}.{self.id}"

    def available(self, ended: bool) -> bool:
        return self.when == "always" or ended == (self.when == "after_end")


_RUN: tuple[KeyContext, ...] = ("live",)
_IN_PROGRESS: tuple[KeyContext, ...] = ("live", "watch")
_PANELS: tuple[KeyContext, ...] = ("live", "replay", "watch")
_PAGES: tuple[KeyContext, ...] = ("stream", "page", "compare")
_ENDED: tuple[KeyContext, ...] = ("live", "replay", "result")
# The panels of other screens, by their keys 1, 2 …
_OTHER_PANELS: dict[KeyContext, tuple[tuple[str, str], ...]] = {
    "compare": (
        ("answer", "What changed, and whether it helped"),
        ("curves", "The curves of the sessions"),
        ("change", "The change of each level as a bar"),
        ("figures", "All figures side by side"),
    ),
    "sessions": (
        ("sessions", "The list of sessions"),
        ("preview", "The session under the cursor"),
        ("curve", "Its curve, with those of marked sessions"),
    ),
    "tune": (
        ("configurations", "The configurations and their figures"),
        ("trade-off", "Output tok/s and TTFT of each configuration as a chart"),
        ("leaderboard", "Best first, each compared with the best"),
        ("result", "What was found: the best, Pareto fronts, the effect of each flag"),
    ),
    "probes": (("probes", "The rate over time, and whether it drifted"), ("list", "All probes, newest first")),
    "log": (("log", "All changes"), ("change", "The whole text of the change")),
}
_WITH_PANELS: tuple[KeyContext, ...] = (*_PANELS, "result", *_OTHER_PANELS)
_LISTS: tuple[KeyContext, ...] = (*_PANELS, "result", "sessions", "tune", "tunes", "log", "probes", *_PAGES)
_MAIN: tuple[KeyContext, ...] = (*_PANELS, "setup", "tune")
_MOVABLE: tuple[KeyContext, ...] = (*_LISTS, "pick")
_ALL: tuple[KeyContext, ...] = ("everywhere",)

ACTIONS: tuple[Action, ...] = (
    Action("more", "plus,equals_sign", "+", "agent", "Add one stream (C + 1)", "Load", _RUN, True),
    Action("fewer", "minus", "-", "fewer", "Remove one stream (C - 1)", "Load", _RUN),
    Action("double", "right_square_bracket", "]", "double", "Double the number of streams", "Load", _RUN),
    Action("halve", "left_square_bracket", "[", "halve", "Halve the number of streams", "Load", _RUN),
    Action("type_c", "c", "c", "set C", "Enter the number of streams", "Load", _RUN, when="before_end"),
    Action("sweep", "s", "s", "sweep", "Run a list of levels automatically", "Load", _RUN, True),
    Action("find_cliff", "f", "f", "cliff", "Find the cliff: double C until requests queue", "Load", _RUN),
    Action("find_capacity", "N", "N", "agents", "Find how many agents keep an SLO", "Load", _RUN, True, True),
    Action("next_level", "n", "n", "next level", "End this run of this level and start the next", "Load", _RUN),
    Action("pause", "p", "p", "pause", "Send no new requests until p is pressed again", "Load", _RUN, True),
    Action("stop", "x", "x", "stop", "Let requests in flight finish, then save", "Load", _RUN, True),
    Action("again", "R", "R", "run again", "Repeat the plan; compare with the run before a change", "Load",
           ("live", "result"), False, True),
    Action("again", "R", "R", "run again", "Repeat the plan of the newest one", "Sessions", ("compare",), True),
    Action("find_capacity", "N", "N", "surer search", "Ask the same again, 99 % sure; some minutes", "Sessions",
           ("result",), False, True),
    Action("find_capacity", "N", "N", "surer", "Ask the same again, 99 % sure; some minutes", "Sessions",
           ("compare",), True),
    Action("describe", "w", "w", "save as", "Set label, note and directory of a session", "Session", _RUN, True, True),
    Action("export", "e", "e", "export", "Write a file: HTML, Markdown, CSV, SVG …", "Session",
           (*_PANELS, "result", "sessions", "compare"), False, True),
    Action("share", "S", "S", "share", "A card, a post and a file to send", "Session",
           _ENDED, False, True, "after_end"),
    Action("detach", "d", "d", "detach", "Quit; the run continues (swarmtui attach)", "Session", _RUN, True),
    Action("checklist", "P", "P", "checklist", "Publication checklist", "Session",
           (*_PANELS, "result", "sessions")),
    Action("sessions", "L", "L", "sessions", "Saved sessions: results, compare, delete", "Session",
           (*_MAIN, "result", "compare"), False, True),
    Action("baseline", "b", "b", "baseline", "Compare the next runs with this one; again: not any more", "Session",
           (*_PANELS, "result"), False, True),
    Action("compare_baseline", "c", "c", "compare", "With its baseline or another one", "Session",
           _ENDED, False, True, "after_end"),
    Action("copy_command", "y", "y", "copy", "Copy the flag or command to try next", "Session",
           _ENDED, False, True, "after_end"),
    Action("replay", "r", "r", "replay", "Watch this session again", "Session", ("result",), False, True),
    Action("tuning_log", "T", "T", "log", "Tuning log: each change and its effect", "Session", _ALL),
    Action("probe_history", "H", "H", "probes", "Probe history: throughput over time, drift", "Session", _ALL),
    Action("tunes", "U", "U", "tunes", "All tunes with the best configuration of each", "Session", _ALL),
    Action("freeze", "space", "space", "freeze", "Freeze the display; the run continues", "View", _IN_PROGRESS, True),
    Action("filter", "slash", "/", "filter", "Show only the agents that contain a text", "View", _PANELS),
    Action("sort", "o", "o", "sort", "Sort the agents by the next column", "View", _PANELS),
    Action("text", "v", "v", "text", "Show or hide the text of the agents", "View", _PANELS, when="before_end"),
    Action("heat_map", "m", "m", "heat map", "Agents as a heat map, or one line each", "View", _PANELS),
    Action("open_stream", "enter", "enter", "open", "Text and times of the agent", "View", _PANELS),
    *(Action(f"panel({key})", str(key), str(key), panel.label, panel.tooltip, "View", (*_PANELS, "result"))
      for key, panel in sorted(PANELS.items())),
    *(Action(f"panel({key})", str(key), str(key), label, tooltip, "View", (context,))
      for context, panels in _OTHER_PANELS.items() for key, (label, tooltip) in enumerate(panels, start=1)),
    Action("next_panel(1)", "tab", "tab", "next panel", "Go to the next panel", "View", _WITH_PANELS),
    Action("next_panel(-1)", "shift+tab", "⇧tab", "previous panel", "Go to the previous panel", "View", _WITH_PANELS),
    Action("play", "space", "space", "play", "Play or pause", "Replay", ("replay",), True),
    Action("faster", "plus,equals_sign", "+", "faster", "Faster, up to ×50", "Replay", ("replay",), True),
    Action("slower", "minus", "-", "slower", "Slower, down to ×1", "Replay", ("replay",), True),
    Action("seek(10)", "right", "→", "+10 s", "10 seconds forward", "Replay", ("replay",), True),
    Action("seek(-10)", "left", "←", "−10 s", "10 seconds back", "Replay", ("replay",), True),
    Action("seek(60)", "right_square_bracket", "]", "+60 s", "1 minute forward", "Replay", ("replay",)),
    Action("seek(-60)", "left_square_bracket", "[", "−60 s", "1 minute back", "Replay", ("replay",)),
    Action("start", "f5,ctrl+s,ctrl+j", "Enter", "start", "Start the benchmark, also F5", "Setup", ("setup",), True),
    Action("next_part", "tab", "tab", "next", "Next list or field", "Setup", ("setup",), True),
    Action("previous_part", "shift+tab", "⇧tab", "previous", "Previous list or field", "Setup", ("setup",)),
    Action("last_time", "0", "0", "last result", "Open what was found here last time", "Setup", ("setup",)),
    Action("part(1)", "1", "1", "endpoint", "Go to the endpoints", "Setup", ("setup",)),
    Action("part(2)", "2", "2", "model", "Go to the models of the endpoint", "Setup", ("setup",)),
    Action("part(3)", "3", "3", "workload", "Go to the workloads", "Setup", ("setup",)),
    Action("part(4)", "4", "4", "plan", "Go to the plan and its fields", "Setup", ("setup",)),
    Action("refresh", "ctrl+r", "^r", "rescan", "Search this host for endpoints again", "Setup", ("setup",), True),
    Action("again", "R", "R", "run again", "On the result of a session: L lists them", "Setup", ("setup",)),
    Action("sort", "o", "o", "sort", "Sort by the next column", "Sessions", ("sessions",), True),
    Action("filter", "slash", "/", "filter", "By model, workload, label or tag", "Sessions", ("sessions",), True),
    Action("open", "enter", "enter", "result", "Show the result of this session", "Sessions", ("sessions",), True),
    Action("replay", "r", "r", "replay", "Watch this session again", "Sessions", ("sessions",), True),
    Action("mark", "m,space", "m", "mark", "Mark for comparison; also Space", "Sessions", ("sessions",), True),
    Action("compare", "c", "c", "compare", "The marked ones, or with the one beside", "Sessions", ("sessions",), True),
    Action("next_baseline", "b", "b", "swap", "Swap before and now; of several, the next is the baseline", "Sessions",
           ("compare",), True),
    Action("next_figure", "v", "v", "other curve", "Show output, first token, per agent or Pareto", "Sessions",
           ("compare",), True),
    Action("import", "i", "i", "import", "Add a session that somebody shared", "Sessions", ("sessions",), True),
    Action("share", "S", "S", "share", "A card, a post and a file to send", "Sessions", ("sessions",), True),
    Action("delete", "delete,D", "D", "delete", "Delete this session; u restores it", "Sessions", ("sessions",), True),
    Action("undo", "u", "u", "undo", "Restore the session deleted last", "Sessions", ("sessions",), True),
    Action("open", "enter", "enter", "open", "Configurations of this tune", "Tune", ("tunes",), True),
    Action("open", "enter", "enter", "open", "Live screen, replay, server log or error", "Tune", ("tune",), True),
    Action("sort", "o", "o", "sort", "In order of the file, or of the leaderboard", "Tune", ("tune",), True),
    Action("copy_command", "y", "y", "copy command", "Copy the command of the first one", "Tune", ("tune",), True),
    Action("stop_tune", "x", "x", "stop", "Stop the tune; the same command resumes it", "Tune", ("tune",), True),
    Action("leave_tune", "d", "d", "detach", "Quit; the tune continues", "Tune", ("tune",), True),
    Action("pin", "p", "p", "pin", "Automatic tune: keep the flags of this configuration", "Tune", ("tune",)),
    Action("veto", "v", "v", "veto", "Automatic tune: never start this configuration", "Tune", ("tune",)),
    Action("add_configuration", "a", "a", "add", "Automatic tune: enter flags to try next", "Tune", ("tune",)),
    Action("stop_after", "s", "s", "stop after", "Automatic tune: stop after this start", "Tune", ("tune",)),
    Action("more_time", "plus,equals_sign", "+", "more time", "Automatic tune: 15 minutes more", "Tune", ("tune",)),
    Action("kept", "y", "y", "kept", "Mark this change as kept", "Log", ("log",), True),
    Action("reverted", "r", "r", "reverted", "Mark this change as reverted", "Log", ("log",), True),
    Action("note", "w", "w", "note", "Add a note to this change", "Log", ("log",), True),
    Action("target(1)", "n,right", "n →", "next target", "Next endpoint and model", "Probes", ("probes",), True),
    Action("target(-1)", "N,left", "N ←", "previous", "Previous endpoint and model", "Probes", ("probes",), True),
    Action("filter", "slash", "/", "filter", "By endpoint, model or workload", "Probes", ("probes",), True),
    Action("take", "enter", "enter", "select", "Confirm the selected item", "Move", ("pick",)),
    Action("move(-1)", "up,k", "k ↑", "up", "One line up", "Move", _MOVABLE),
    Action("move(1)", "down,j", "j ↓", "down", "One line down", "Move", _MOVABLE),
    Action("page(-1)", "pageup,h", "h PgUp", "page up", "One page up", "Move", _MOVABLE),
    Action("page(1)", "pagedown,l", "l PgDn", "page down", "One page down", "Move", _MOVABLE),
    Action("beside(-1)", "left", "←", "left", "Previous stream of a heat map; also h", "Move", _IN_PROGRESS),
    Action("beside(1)", "right", "→", "right", "Next stream of a heat map; also l", "Move", _IN_PROGRESS),
    Action("edge(0)", "g,home", "g", "first", "First line", "Move", _MOVABLE),
    Action("edge(1)", "G,end", "G", "last", "Last line", "Move", _MOVABLE),
    Action("neighbour(1)", "n,right", "n →", "next stream", "Next stream", "Move", ("stream",)),
    Action("neighbour(-1)", "N,left", "N ←", "previous stream", "Previous stream", "Move", ("stream",)),
    Action("theme", "t", "t", "theme", "Choose the colours", "Program", _ALL),
    Action("back", "escape", "esc", "back", "Back to the previous screen", "Program", (*_LISTS, "setup"), False, True),
    Action("palette", "ctrl+p", "^p", "palette", "All actions, by name", "Program", _ALL),
    Action("help", "question_mark,f1", "?", "help", "This field or panel, keys and figures", "Program", _ALL, True),
    Action("redraw", "ctrl+l", "^l", "redraw", "Write the whole screen again", "Program", _ALL),
    Action("suspend", "ctrl+z", "^z", "suspend", "Back to the shell; fg returns, a run continues", "Program", _ALL),
    Action("leave", "q,ctrl+c,ctrl+q", "q", "quit", "Quit; asks first if a run is in progress", "Program", _ALL, True),
)  # fmt: skip

# Keys that work in a text field, as they are shown there.
_FIELD_KEYS = {"f1": "F1", "f5": "Enter", "escape": "esc", "tab": "tab", "shift+tab": "⇧tab"}
# Handled before the focused field: keys typed at once after them must not reach the old field.
_PRIORITY_KEYS = ("tab", "shift+tab")


class Keymap:
    """The table of actions with the keys of [keymap] in config.toml."""

    def __init__(self, overrides: dict[str, str] | None = None) -> None:
        self.overrides = overrides or {}
        self._actions: dict[KeyContext, list[Action]] = {}

    def actions(self, context: KeyContext) -> list[Action]:
        """Return the actions available there; the setup screen contains pick lists, which have their own."""
        if context not in self._actions:
            contexts = {context, "everywhere", *(("pick",) if context == "setup" else ())}
            known = (action for action in ACTIONS if not contexts.isdisjoint(action.contexts))
            self._actions[context] = [*map(self._with_override, known)]
        return self._actions[context]

    def _with_override(self, action: Action) -> Action:
        keys = self.overrides.get(binding_id(action))
        return action if keys is None else action._replace(keys=keys, shown=keys.replace(",", " "))


def binding_id(action: Action) -> str:
    """Return the name used in config.toml: `panel_1` for `panel(1)`."""
    return action.id.replace("(", "_").replace(")", "").replace("-", "minus_")


def in_footer(actions: list[Action], *ids: str) -> list[Action]:
    """Add these actions to the footer."""
    return [action._replace(footer=True) if action.id in ids else action for action in actions]


def relabel(actions: list[Action], labels: dict[str, str]) -> list[Action]:
    """Name actions by what they do at this moment."""
    return [action._replace(label=labels[action.id]) if action.id in labels else action for action in actions]


def while_typing(actions: list[Action]) -> list[Action]:
    """Keep the actions that have a key which is not text, each shown with that key."""
    available = []
    for action in actions:
        key = next((key for key in action.keys.split(",") if "+" in key or key in _FIELD_KEYS), None)
        if key is not None:
            available.append(action._replace(shown=_FIELD_KEYS.get(key) or key.replace("ctrl+", "^")))
    return available


def bindings(context: KeyContext) -> list[Binding]:
    """Return the BINDINGS of a screen; those of the app are `everywhere`, where control keys have priority."""
    result = []
    for action in ACTIONS:
        if context not in action.contexts:
            continue
        every = action.keys.split(",")
        control = [key for key in every if key in _PRIORITY_KEYS or (context == "everywhere" and "+" in key)]
        plain = [key for key in every if key not in control]
        for keys, priority in ((plain, False), (control, True)):
            if keys:
                name = f"{context}.{binding_id(action)}" + (".control" if priority else "")
                result.append(
                    Binding(
                        ",".join(keys),
                        action.id,
                        action.label,
                        show=action.footer,
                        key_display=action.shown,
                        priority=priority,
                        tooltip=action.tooltip,
                        id=name,
                    )
                )
    return result


def keymap(overrides: dict[str, str]) -> dict[str, str]:
    """Return the argument of `App.set_keymap`: the overriding keys of each action, in every context it has."""
    result = {}
    for action in ACTIONS:
        if (name := binding_id(action)) in overrides:
            for context in action.contexts:
                bound = {binding.id for binding in bindings(context)}
                plain, control = f"{context}.{name}", f"{context}.{name}.control"
                result[plain if plain in bound else control] = overrides[name]
    return result


def known_ids() -> set[str]:
    return {binding_id(action) for action in ACTIONS}
