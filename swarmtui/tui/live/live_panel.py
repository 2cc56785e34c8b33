"""The base class of the panels of the live screen, and the data that they show."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, cast

from swarmtui.tui.baseline import Baseline
from swarmtui.tui.lines import Line, LineWidget, heading
from swarmtui.tui.live.panels import PANELS
from swarmtui.tui.live_model import LiveModel

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair

StreamOrder = Literal["agent", "tok/s", "tokens", "TTFT", "state"]


class LiveData(NamedTuple):
    """`shown` is the state at present or when the display was frozen; `only_panel` is the key of a single panel.

    `no_level` and `no_curve` say why there are none; `comparison` is a notice after the end.
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
    no_level: str
    no_curve: str
    comparison: str

    @property
    def t0_ns(self) -> int:
        return self.shown.session.t0_ns if self.shown.session else 0


class HasLiveData(Protocol):
    def live_data(self) -> LiveData: ...


class LivePanel(LineWidget):
    """A part of the live screen, which makes its view from the screen's data.

    class CachePanel(LivePanel, Panel[CacheView]):
        key, title = 7, "prefix cache"

        def update_from(self, data: LiveData) -> None:
            self.show(cache_view(data.shown.frame))
    """

    # A panel without a key is not in PANELS: the screen places it itself.
    key: ClassVar[int] = 0
    title: str = ""
    row: ClassVar[Literal["upper", "lower"]] = "lower"
    # One line instead of a panel while `empty` says why there is nothing to show; in the lower row only.
    collapsible: ClassVar[bool] = True
    large_screens_only: ClassVar[bool] = False
    # Panels that make room for the answer, the levels and the curve; their keys still show them.
    hidden_after_end: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_class(self.large_screens_only, "-large-screens-only")
        self.set_class(self.hidden_after_end, "-hidden-after-end")

    @property
    def height_needed(self) -> int | None:
        """The lines that the panel needs if it is alone in its row; None if it can use all of them."""
        return None

    def update_from(self, data: LiveData) -> None:
        """Show the current view for the panel's size."""
        raise NotImplementedError

    def fit_view(self) -> None:
        self.update_from(cast(HasLiveData, self.screen).live_data())

    def heading(self, note: str, width: int) -> Line:
        return heading(str(self.key), self.title, note, width)


def load_panels() -> list[type[LivePanel]]:
    """Import the classes of all panels."""
    targets = (entry.target.partition(":") for entry in PANELS.values())
    return [getattr(importlib.import_module(f"swarmtui.tui.live.{module}"), name) for module, _, name in targets]
