"""One line for each agent; thousands of them, of which only those in sight are made."""

from __future__ import annotations

from textual.message import Message

from swarmtui.tui.lines import Line, Lines, heading, left, right
from swarmtui.tui.live.streams_view import StreamLine, StreamsView


class Streams(Lines):
    """Holds the cursor; the screen makes the view for the lines that it says are in sight."""

    can_focus = True
    view: StreamsView | None = None
    cursor = 0
    top = 0

    class Opened(Message):
        def __init__(self, agent: int) -> None:
            super().__init__()
            self.agent = agent

    @property
    def rows(self) -> int:
        """Lines for streams: without the rule and the titles."""
        return max(0, self.size.height - 2)

    def show(self, view: StreamsView) -> None:
        self.view = view
        self.cursor = min(self.cursor, max(0, view.total - 1))
        self.redraw()

    def move(self, to: int) -> None:
        """Moves the cursor, and what is in sight with it."""
        total = self.view.total if self.view else 0
        self.cursor = min(max(0, to), max(0, total - 1))
        if self.cursor < self.top:
            self.top = self.cursor
        elif self.cursor >= self.top + self.rows:
            self.top = self.cursor - self.rows + 1
        self.top = min(self.top, max(0, total - self.rows))

    @property
    def chosen(self) -> int | None:
        """The agent under the cursor."""
        place = self.cursor - self.top
        return self.view.shown[place].agent if self.view and 0 <= place < len(self.view.shown) else None

    def draw(self, width: int, height: int) -> list[Line]:
        view = self.view
        if view is None:
            return [heading("1", "streams", "", width)]
        lines = [heading("1", "streams", _beside(view, self.rows), width)]
        if not view.shown:
            return [*lines, [(f" {view.empty}", "dim")]]
        task = max(4, width - 49)
        lines.append([(_titles(task), "dim")])
        for line in view.shown:
            lines.append(self._line(line, task, width, at=view.top + len(lines) - 2))
        return lines

    def _line(self, line: StreamLine, task: int, width: int, at: int) -> Line:
        quiet = line.state in ("idle", "waiting")
        here = at == self.cursor
        state = {"writing": "first", "thinking": "second", "prefill": "second", "backing off": "bad"}
        return [
            ("›" if here else " ", "cursor" if here else ""),
            (right(str(line.agent), 4) + " ", "bold" if here else ""),
            (left(f"{line.sign} {line.state}", 12), state.get(line.state, "dim")),
            (left(f"★ {line.task}" if line.primary else line.task, task) + " ", "dim" if quiet else ""),
            (right(line.tokens, 6), ""),
            (right(line.rate, 7), "bold"),
            (f" {line.spark} ", "first"),
            (right(line.ttft, 7), "dim" if quiet else ""),
        ]


def _titles(task: int) -> str:
    head = f"agent {'state':<12}{left('task', task)} {'tokens':>6}"
    return f"{head}{'tok/s':>7} {'last 8 s':<8} {'TTFT':>7}"


def _beside(view: StreamsView, rows: int) -> str:
    words = [f"by {view.order}"]
    if view.filter:
        words.insert(0, f"/{view.filter}")
    if view.total > rows:
        words.append(f"{view.top + 1}–{min(view.total, view.top + rows)} of {view.total}")
    else:
        words.append(str(view.total))
    return " · ".join(words)
