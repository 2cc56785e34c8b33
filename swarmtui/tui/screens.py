"""The screens of the app by name."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from textual.screen import Screen

from swarmtui.tui.keys import KeyContext

ScreenName = Literal[
    "run", "replay", "result", "stream", "setup", "sessions", "checklist", "compare", "log", "probes", "tune", "tunes",
    "tune_watch", "server_log", "failure", "help", "palette", "save", "export", "share", "theme", "quit",
    "too_small",
]  # fmt: skip

# Module and class of each screen. A module is imported when its screen is first opened, so that the first paint waits
# for one screen only. Screens open each other through this table; they import the app for its type alone.
SCREENS: dict[ScreenName, str] = {
    "run": "live.run_screen:RunScreen",
    "replay": "live.watch_screens:ReplayScreen",
    "result": "live.watch_screens:SavedScreen",
    "stream": "live.stream_screen:StreamScreen",
    "setup": "setup.screen:SetupScreen",
    "sessions": "sessions.screen:SessionsScreen",
    "checklist": "sessions.page_screens:ChecklistScreen",
    "compare": "sessions.compare_screen:CompareScreen",
    "log": "log_screen:LogScreen",
    "probes": "probes_screen:ProbesScreen",
    "tune": "tune.screen:TuneScreen",
    "tunes": "tune.list_screen:TuneListScreen",
    "tune_watch": "live.watch_screens:WatchScreen",
    "server_log": "tune.screen:ServerLogScreen",
    "failure": "tune.screen:FailureScreen",
    "help": "dialogs:HelpScreen",
    "palette": "dialogs:Palette",
    "save": "dialogs:SaveDialog",
    "export": "export_dialog:ExportDialog",
    "share": "sessions.page_screens:ShareScreen",
    "theme": "dialogs:ThemeDialog",
    "quit": "dialogs:QuitDialog",
    "too_small": "dialogs:TooSmallScreen",
}


def make_screen(name: ScreenName, *args: Any) -> Screen[Any]:
    module, _, class_name = SCREENS[name].partition(":")
    screen: Screen[Any] = getattr(importlib.import_module(f"swarmtui.tui.{module}"), class_name)(*args)
    return screen


def key_context(screen: Screen[Any]) -> KeyContext:
    """The row of the key table that applies to this screen."""
    context: KeyContext = getattr(screen, "key_context", "live")
    return context
