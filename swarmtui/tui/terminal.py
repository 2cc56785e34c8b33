"""What we do differently from Textual on the way to the terminal: fewer bytes, and knowing when it is behind."""

from __future__ import annotations

import select

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate
from textual.drivers.linux_driver import LinuxDriver


class Terminal(LinuxDriver):
    @property
    def behind(self) -> bool:
        """Something that was painted has not been taken yet: painting more would only make keys wait."""
        thread = self._writer_thread
        return thread is not None and thread._queue.qsize() > 0

    @property
    def gone(self) -> bool:
        """The other end was closed; a program that ignores SIGHUP, under nohup say, learns it in no other way."""
        looked = select.poll()
        looked.register(self.fileno, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in looked.poll(0))


class Narrow(ChopsUpdate):
    """Textual sends a changed line from the widget's left edge on; this sends the changed cells alone."""

    def render_segments(self, console: Console) -> str:
        parts: list[str] = []
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                start = max(x, x1)
                parts.append(Control.move_to(start, y).segment.text)
                parts.append(strip.crop(start - x, min(end, x2) - x).render(console))
        return "".join(parts)
