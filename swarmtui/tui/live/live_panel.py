"""The base class of the panels of the live screen, and the data that they show."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, cast

from swarmtui.text import count_noun
from swarmtui.tui.baseline import Baseline
from swarmtui.tui.lines import Line, LineWidget, Movable, cell_width, part_text, shorten
from swarmtui.tui.live.layout import Place
from swarmtui.tui.live.panels import PANELS
from swarmtui.tui.live_model import LiveModel

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

StreamOrder = Literal["state", "agent", "tok/s", "tokens", "TTFT"]


class LiveData(NamedTuple):
    """`shown` is the state at present or when the display was frozen; `only_panel` is the key of a single panel.

    `requested_c` is a C that no frame has reported yet. `comparison` is a notice after the end.
    `level_hint` says how levels come about where they do not by themselves. `again_key` runs the session again; empty
    where no key does.
    """

    shown: LiveModel
    has_ended: bool
    is_replay: bool
    only_panel: int | None
    order: StreamOrder
    filter_text: str
    is_map: bool
    baseline: Baseline
    pair: Pair | None
    comparison: str
    level_hint: str = ""
    requested_c: int | None = None
    again_key: str = ""

    @property
    def t0_ns(self) -> int:
        return self.shown.session.t0_ns if self.shown.session else 0

    @property
    def no_level(self) -> str:
        """Why the table of levels is empty."""
        if self.level_hint:
            return f"no level yet: 4·C requests make one; {self.level_hint}"
        if self.has_ended:
            return "no level was measured"
        frame = self.shown.frame
        begun = frame is not None and frame.status not in ("starting", "warming up")
        return "no level yet: the first one is running" if begun else "no level yet"

    @property
    def no_curve(self) -> str:
        """Why there is no curve."""
        why = "no level was measured" if self.has_ended else "the curve starts with the first level"
        return f"{why}; {self.level_hint}" if self.level_hint else why


class HasLiveData(Protocol):
    def live_data(self) -> LiveData: ...
    def update_panels(self) -> None: ...


class LivePanel(LineWidget):
    """A part of the live screen, which makes its view from the screen's data.

    class CachePanel(LivePanel, Panel[CacheView]):
        key, title = 8, "prefix cache"

        def update_from(self, data: LiveData) -> None:
            self.show(cache_view(data.shown.frame))

        def draw(self, width: int, height: int) -> list[Line]:
            return [self.heading("", width), *lines_of(self.view)]

    Its key shows it in the region that is shared by panels without a place in `layout`.
    """

    # A panel without a key is not in PANELS: the screen composes it itself.
    key: int = 0
    place: ClassVar[Place] = "shared"
    # The ids of actions that the footer shows while the keys act on this panel.
    actions: ClassVar[tuple[str, ...]] = ()

    @property
    def framed(self) -> bool:
        return True

    def update_from(self, data: LiveData) -> None:
        """Show the current view for the panel's size."""
        raise NotImplementedError

    def fit_view(self) -> None:
        self.update_from(cast(HasLiveData, self.screen).live_data())

    def figure_at(self, x: int, y: int) -> str:
        """Return the id of the figure in this cell, for help; empty if there is none."""
        return ""

    @property
    def keys_alone(self) -> str:
        """The keys that show this panel alone: the first press goes to it."""
        return f"press {self.key}" if self.in_focus else f"press {self.key} twice"

    def cut_line(self, lines: int) -> Line:
        return [(f" … {count_noun(lines, 'line')} more: {self.keys_alone}", "dim")]


class ScrollingPanel(LivePanel, Movable):
    """The movement keys reach each of its lines; some panels have fewer unless they are `alone`."""

    alone = False
    # The first visible line; None before the first movement.
    _top: int | None = None
    _last_top = 0

    def scrolled(self, note: str, lines: Sequence[Line], width: int, height: int, leading: int = 0) -> list[Line]:
        """Return the heading and the visible lines: the first ones, but not without those before `leading`."""
        room = max(1, height - 1)
        top = max(0, min(leading - room if self._top is None else self._top, len(lines) - room))
        self._last_top = top
        part = part_text(range(top, min(len(lines), top + room)), len(lines))
        if part:
            # Where the lines are is never cut: the title and the note are.
            self.title = shorten(self.title, max(8, width - len(part) - 13))
            note = note if cell_width(self.title) + cell_width(note) + len(part) + 16 <= width else ""
        return [self.heading(" · ".join(filter(None, (note, part))), width), *lines[top : top + room]]

    def move(self, by: int) -> None:
        self._top = max(0, self._last_top + by)
        self.redraw()

    def move_to_edge(self, last: bool) -> None:
        self._top = sys.maxsize if last else 0
        self.redraw()


@cache
def load_panels() -> Sequence[type[LivePanel]]:
    """Import the classes of all panels."""
    targets = (entry.target.partition(":") for entry in PANELS.values())
    return [getattr(importlib.import_module(f"swarmtui.tui.live.{module}"), name) for module, _, name in targets]
