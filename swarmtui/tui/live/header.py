"""What is measured, how far it is, and whether it can be believed."""

from __future__ import annotations

from swarmtui.tui.lines import Line, Lines, left, longest, right, wrapped
from swarmtui.tui.live.header_view import HeadView
from swarmtui.tui.numbers import bar

_BAR = 16


class Header(Lines):
    view: HeadView | None = None
    frozen = False

    def show(self, view: HeadView, frozen: bool) -> None:
        self.view, self.frozen = view, frozen
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [[(" swarmtui", "title"), ("  starting …", "dim")]]
        trust = f"{view.trust} "
        room = max(0, width - len(" swarmtui  ") - len(trust) - 1)
        title = left(longest(view.title, room), room)
        first: Line = [(" swarmtui  ", "title"), (title, ""), (" ", ""), (trust, view.trust_mood)]
        second: Line = [(f" {view.phase} ", "bold")]
        if view.share is not None:
            full, rest = bar(view.share, _BAR)
            second += [(full, "first"), (rest, "empty"), (" ", "")]
        elif view.progress:
            second.append(("· ", "dim"))
        second += [(view.progress, ""), ("   ", "")]
        if self.frozen:
            second += [("DISPLAY FROZEN, space goes on", "warn"), ("   ", "")]
        used = sum(len(text) for text, _ in second)
        room = width - used - len(view.clock) - 4
        split = next((text for text in view.split if len(text) <= room), "")
        if split:
            second += [(split, ""), ("   ", "")]
            used += len(split) + 3
        second.append((right(f"{view.clock} ", max(0, width - used)), "dim"))
        lines = [first, second]
        notices = wrapped(view.notice, max(8, width - 2)) if height > 3 else [view.notice]
        style = view.notice_mood or "dim"
        for notice in notices[: max(0, height - 2)]:
            lines.append([(f" {notice}", style)])
        return lines
