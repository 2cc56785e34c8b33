"""The base class of the panels of the live screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from swarmtui.tui.lines import Line, LineWidget, heading

if TYPE_CHECKING:
    from swarmtui.tui.live.screen import LiveScreen


class LivePanel(LineWidget):
    """A part of the live screen, which makes its view from the screen's data.

    class CachePanel(LivePanel, Panel[CacheView]):
        key, title = 7, "prefix cache"

        def update_from(self, screen: LiveScreen) -> None:
            self.show(cache_view(screen.shown.frame))
    """

    # A panel without a key is not in PANELS: the screen places it itself.
    key: ClassVar[int] = 0
    title: str = ""
    row: ClassVar[Literal["upper", "lower"]] = "lower"
    # One line instead of a panel while `empty` says why there is nothing to show; in the lower row only.
    collapsible: ClassVar[bool] = True
    large_screens_only: ClassVar[bool] = False
    # Panels whose content the result contains.
    hidden_after_end: ClassVar[bool] = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_class(self.large_screens_only, "-large-screens-only")
        self.set_class(self.hidden_after_end, "-hidden-after-end")

    @property
    def height_needed(self) -> int | None:
        """The lines that the panel needs if it is alone in its row; None if it can use all of them."""
        return None

    def update_from(self, screen: LiveScreen) -> None:
        """Show the current view for the panel's size."""
        raise NotImplementedError

    def fit_view(self) -> None:
        self.update_from(cast("LiveScreen", self.screen))

    def heading(self, note: str, width: int) -> Line:
        return heading(str(self.key), self.title, note, width)
