"""Every key there is: one table, from which bindings, footer, help and palette are made."""

from __future__ import annotations

from typing import Literal, NamedTuple

from textual.binding import Binding

Where = Literal[
    "live",
    "replay",
    "watch",
    "setup",
    "stream",
    "sessions",
    "tune",
    "tunes",
    "log",
    "probes",
    "page",
    "compare",
    "pick",
    "everywhere",
]


class Action(NamedTuple):
    """`id` is also the name of the method (`action_…`) and the key of [keymap] in config.toml.

    `footer` and `after`: shown in the last line, and in that of a run that has ended.
    """

    id: str
    keys: str
    shown: str
    label: str
    tooltip: str
    group: str
    where: tuple[Where, ...]
    footer: bool = False
    after: bool = False


_RUN: tuple[Where, ...] = ("live",)
_NOW: tuple[Where, ...] = ("live", "watch")
_LOOK: tuple[Where, ...] = ("live", "replay", "watch")
_PAGES: tuple[Where, ...] = ("stream", "page", "compare")
_LISTS: tuple[Where, ...] = ("live", "replay", "watch", "sessions", "tune", "tunes", "log", "probes", *_PAGES)
_ANY: tuple[Where, ...] = (*_LOOK, "setup", "tune")
_MOVED: tuple[Where, ...] = (*_LISTS, "pick")
_EVERYWHERE: tuple[Where, ...] = ("everywhere",)

ACTIONS: tuple[Action, ...] = (
    Action("more", "plus,equals_sign", "+", "more", "One stream more (C + 1)", "Load", _RUN, True),
    Action("fewer", "minus", "-", "fewer", "One stream fewer (C - 1)", "Load", _RUN),
    Action("double", "right_square_bracket", "]", "double", "Twice as many streams", "Load", _RUN, True),
    Action("halve", "left_square_bracket", "[", "halve", "Half as many streams", "Load", _RUN),
    Action("type_c", "c", "c", "type C", "Type the number of streams", "Load", _RUN),
    Action("sweep", "s", "s", "sweep", "Run levels by itself, one after the other", "Load", _RUN, True),
    Action("find_cliff", "f", "f", "cliff", "Find the cliff: double C until it brings nothing", "Load", _RUN, True),
    Action("next_level", "n", "n", "next level", "End this run of this level, go on to the next", "Load", _RUN),
    Action("pause", "p", "p", "pause", "No new requests until p is pressed again", "Load", _RUN, True),
    Action("stop", "x", "x", "stop", "No new requests; what is in flight may end; then save", "Load", _RUN, True),
    Action("again", "R", "R", "again", "The same plan once more, this one as a ghost", "Load", _RUN, False, True),
    Action("describe", "w", "w", "save as", "Label, note and place of this session", "Session", _RUN, True, True),
    Action("export", "e", "e", "export", "Write a report of this session, in Markdown", "Session", _LOOK, False, True),
    Action("detach", "d", "d", "detach", "Leave; the run goes on, `swarmtui attach` joins it", "Session", _RUN, True),
    Action("checklist", "P", "P", "publish?", "Fit to publish? The whole checklist", "Session", (*_LOOK, "sessions")),
    Action("sessions", "L", "L", "sessions", "Saved sessions: watch, compare, delete", "Session", _ANY, False, True),
    Action("baseline", "b", "b", "baseline", "Hold the next runs against this session", "Session", _LOOK, False, True),
    Action("tuning_log", "T", "T", "log", "Tuning log: what was changed, what it gave", "Session", _EVERYWHERE),
    Action("probe_history", "H", "H", "probes", "History of probes: all over time, and drift", "Session", _EVERYWHERE),
    Action("tunes", "U", "U", "tunes", "Tunes so far: their grids, and the best each found", "Session", _EVERYWHERE),
    Action("freeze", "space", "space", "freeze", "Hold the display still; data goes on", "Look", _NOW, True),
    Action("filter", "slash", "/", "filter", "Only streams whose line holds these words", "Look", _LOOK, True),
    Action("order", "o", "o", "order", "Sort streams by the next column", "Look", _LOOK),
    Action("open_stream", "enter", "enter", "open stream", "The stream at the cursor: text and stamps", "Look", _LOOK),
    Action("panel(1)", "1", "1", "streams", "Streams alone; Esc brings all panels back", "Look", _LOOK),
    Action("panel(2)", "2", "2", "history", "History alone, the whole session", "Look", _LOOK),
    Action("panel(3)", "3", "3", "GPUs", "GPUs alone", "Look", _LOOK),
    Action("panel(4)", "4", "4", "levels", "Levels alone, with all columns and remarks", "Look", _LOOK),
    Action("panel(5)", "5", "5", "curve", "Curve alone", "Look", _LOOK),
    Action("panel(6)", "6", "6", "trust", "Trust alone: can the figures be believed?", "Look", _LOOK),
    Action("play", "space", "space", "play", "Let time go on, or hold it", "Replay", ("replay",), True),
    Action("faster", "plus,equals_sign", "+", "faster", "Up to ×50", "Replay", ("replay",), True),
    Action("slower", "minus", "-", "slower", "Down to ×1", "Replay", ("replay",), True),
    Action("seek(10)", "right", "→", "+10 s", "Ten seconds on", "Replay", ("replay",), True),
    Action("seek(-10)", "left", "←", "−10 s", "Ten seconds back", "Replay", ("replay",), True),
    Action("seek(60)", "right_square_bracket", "]", "+60 s", "A minute on", "Replay", ("replay",)),
    Action("seek(-60)", "left_square_bracket", "[", "−60 s", "A minute back", "Replay", ("replay",)),
    Action("start", "f5,ctrl+s", "F5", "start", "Start with what is chosen, as Enter does", "Setup", ("setup",), True),
    Action("next_part", "tab", "tab", "next", "The next list or field", "Setup", ("setup",), True),
    Action("part_before", "shift+tab", "⇧tab", "before", "The list or field before", "Setup", ("setup",)),
    Action("part(1)", "1", "1", "endpoint", "To the list of endpoints", "Setup", ("setup",)),
    Action("part(2)", "2", "2", "model", "To the models of the endpoint", "Setup", ("setup",)),
    Action("part(3)", "3", "3", "workload", "To the workloads", "Setup", ("setup",)),
    Action("part(4)", "4", "4", "plan", "To the plan, and the fields below it", "Setup", ("setup",)),
    Action("refresh", "ctrl+r", "^r", "look again", "Look for endpoints on this host again", "Setup", ("setup",), True),
    Action("sort", "o", "o", "order", "Sort by the next column", "Sessions", ("sessions",), True),
    Action("narrow", "slash", "/", "filter", "By model, workload, label or tag", "Sessions", ("sessions",), True),
    Action("watch", "enter", "enter", "replay", "Watch it again", "Sessions", ("sessions",), True),
    Action("mark", "m", "m", "mark", "Mark for comparing", "Sessions", ("sessions",), True),
    Action("compare", "c", "c", "compare", "Marked sessions side by side", "Sessions", ("sessions",), True),
    Action("next_baseline", "b", "b", "baseline", "Hold all against the next one", "Sessions", ("compare",), True),
    Action("next_figure", "v", "v", "curve", "Throughput, TTFT or rate of a stream", "Sessions", ("compare",), True),
    Action("delete", "delete,D", "D", "delete", "Take it away; u brings it back", "Sessions", ("sessions",), True),
    Action("undo", "u", "u", "undo", "Bring back what was deleted last", "Sessions", ("sessions",), True),
    Action("open_tune", "enter", "enter", "open", "The grid of this tune", "Tune", ("tunes",), True),
    Action("open_cell", "enter", "enter", "look at it", "Live screen, replay, log or reason", "Tune", ("tune",), True),
    Action("best_first", "o", "o", "order", "As in the file, or best first", "Tune", ("tune",), True),
    Action("view(1)", "1", "1", "cells", "Cells alone; Esc brings all back", "Tune", ("tune",)),
    Action("view(2)", "2", "2", "leaderboard", "Best first, each against the best", "Tune", ("tune",), True),
    Action("view(3)", "3", "3", "fronts, flags", "Pareto fronts, and what each flag did", "Tune", ("tune",), True),
    Action("stop_tune", "x", "x", "stop", "Stop the tune; the same command goes on later", "Tune", ("tune",), True),
    Action("leave_tune", "d", "d", "detach", "Leave; the tune goes on", "Tune", ("tune",), True),
    Action("kept", "y", "y", "kept", "This change stays", "Log", ("log",), True),
    Action("reverted", "r", "r", "reverted", "This change was taken back", "Log", ("log",), True),
    Action("note", "w", "w", "note", "Why, in your words", "Log", ("log",), True),
    Action("target(1)", "n,right", "n →", "next", "The next endpoint and model", "Probes", ("probes",), True),
    Action("target(-1)", "N,left", "N ←", "before", "The endpoint and model before", "Probes", ("probes",), True),
    Action("narrow_probes", "slash", "/", "filter", "By endpoint, model or workload", "Probes", ("probes",), True),
    Action("take", "enter", "enter", "take", "Take what is chosen", "Move", ("pick",)),
    Action("move(-1)", "up,k", "k ↑", "up", "One line up", "Move", _MOVED),
    Action("move(1)", "down,j", "j ↓", "down", "One line down", "Move", _MOVED),
    Action("page(-1)", "pageup,h", "h PgUp", "page up", "One page up", "Move", _MOVED),
    Action("page(1)", "pagedown,l", "l PgDn", "page down", "One page down", "Move", _MOVED),
    Action("edge(0)", "g,home", "g", "first", "To the first line", "Move", _MOVED),
    Action("edge(1)", "G,end", "G", "last", "To the last line", "Move", _MOVED),
    Action("neighbour(1)", "n,right", "n →", "next stream", "The next stream", "Move", ("stream",)),
    Action("neighbour(-1)", "N,left", "N ←", "stream before", "The stream before", "Move", ("stream",)),
    Action("next_theme", "t", "t", "theme", "The next theme", "Program", _EVERYWHERE),
    Action("back", "escape", "esc", "back", "Back to where you were", "Program", (*_LISTS, "setup"), False, True),
    Action("palette", "ctrl+p", "^p", "palette", "All actions, by name", "Program", _EVERYWHERE),
    Action("help", "question_mark", "?", "help", "All keys, and what the figures mean", "Program", _EVERYWHERE, True),
    Action("leave", "q,ctrl+c,ctrl+q", "q", "quit", "Quit; asks what becomes of a run", "Program", _EVERYWHERE, True),
)  # fmt: skip

GROUPS = ("Load", "Replay", "Setup", "Session", "Sessions", "Tune", "Log", "Probes", "Look", "Move", "Program")


_TYPED_AS = {"f5": "F5", "escape": "esc", "tab": "tab", "shift+tab": "⇧tab"}
# Taken before the field that has the focus: what is typed next, however fast, must not end up in it.
_AT_ONCE = ("tab", "shift+tab")


class Keymap:
    """The table with the keys that a person prefers; `overrides` is [keymap] of config.toml."""

    def __init__(self, overrides: dict[str, str] | None = None) -> None:
        self.overrides = overrides or {}

    def actions(self, where: Where) -> list[Action]:
        """Lists to choose from have keys of their own, and stand on the setup screen."""
        places = {where, "everywhere", *(("pick",) if where == "setup" else ())}
        return [self._own(action) for action in ACTIONS if not places.isdisjoint(action.where)]

    def _own(self, action: Action) -> Action:
        keys = self.overrides.get(binding_id(action))
        return action if keys is None else action._replace(keys=keys, shown=keys.replace(",", " "))


def binding_id(action: Action) -> str:
    """`panel(1)` is called panel_1 in config.toml."""
    return action.id.replace("(", "_").replace(")", "").replace("-", "minus_")


def shown(actions: list[Action], *ids: str) -> list[Action]:
    """With these in the last line, too."""
    return [action._replace(footer=True) if action.id in ids else action for action in actions]


def while_typing(actions: list[Action]) -> list[Action]:
    """Those that can be taken from within a field, where letters are text, each with the key that does it there."""
    taken = []
    for action in actions:
        key = next((key for key in action.keys.split(",") if "+" in key or key in _TYPED_AS), None)
        if key is not None:
            taken.append(action._replace(shown=_TYPED_AS.get(key) or key.replace("ctrl+", "^")))
    return taken


def bindings(where: Where) -> list[Binding]:
    """For BINDINGS of a screen; `everywhere` is for the app itself, where control keys come before any input."""
    made = []
    for action in ACTIONS:
        if where not in action.where:
            continue
        given = action.keys.split(",")
        control = [key for key in given if key in _AT_ONCE or (where == "everywhere" and "+" in key)]
        plain = [key for key in given if key not in control]
        for keys, priority in ((plain, False), (control, True)):
            if keys:
                name = f"{where}.{binding_id(action)}" + (".control" if priority else "")
                made.append(
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
    return made


def keymap(overrides: dict[str, str]) -> dict[str, str]:
    """For `App.set_keymap`: the same keys wherever the action can be taken, also where it has control keys alone."""
    made = {}
    for action in ACTIONS:
        if (name := binding_id(action)) in overrides:
            for where in action.where:
                bound = {binding.id for binding in bindings(where)}
                plain, control = f"{where}.{name}", f"{where}.{name}.control"
                made[plain if plain in bound else control] = overrides[name]
    return made


def known_ids() -> set[str]:
    return {binding_id(action) for action in ACTIONS}
