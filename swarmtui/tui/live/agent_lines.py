"""Draw one agent of the live screen: its figures, the end of its text, and its times as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.model.worker_protocol import TextTail
from swarmtui.text import sanitize
from swarmtui.tui.lines import Line, Span, ljust, longest_fit, rjust, wrap
from swarmtui.tui.live.heat_map import STATE_STYLES

# The columns of a line that do not depend on the width, of the sparkline, and of the task beside text.
_FIXED, _SPARK, _TASK = 40, 9, 12
# The least columns of text, and those from which the sparkline is shown beside it.
_MIN_TEXT, _ENOUGH_TEXT = 12, 24
_LONG_WORD = 12
# The columns before the further lines of a stream.
_INDENT = 6
_TIME_TITLES = ("▒ time to the first token, █ time since it", "▒ first token, █ since it", "")
# Agents that write, but have no text yet, have their times beside the text of others.
_TEXT_TITLES = ("text, or ▒ waiting █ writing", "text, or ▒ wait █ write", "text")
_BLANK_TEXTS = {
    "waiting": "in the queue of the server", "prefill": "the server reads the prompt", "idle": "no request",
    "connecting": "opening a connection", "backing off": "failed: the next request follows",
}  # fmt: skip


_UNCOUNTED = "warm-up: not counted"


class StreamLine(NamedTuple):
    agent: int
    sign: str
    state: str
    task: str
    tokens: str
    rate: str
    spark: tuple[Span, ...]
    ttft: str
    # Seconds until the first token, and since then.
    wait_s: float = 0.0
    write_s: float = 0.0
    primary: bool = False
    tail: TextTail | None = None
    # Whether the level counts its request, as far as it waits.
    counts: bool = True

    @property
    def without_text(self) -> str:
        """What stands for the text of an agent that has none."""
        return _BLANK_TEXTS.get(self.state, "") if self.counts else _UNCOUNTED


class StreamColumns(NamedTuple):
    """The widths of the columns that depend on the width of the panel; 0: not shown."""

    task: int
    spark: int
    text: int


def agent_columns(width: int) -> StreamColumns:
    """Show text instead of the sparkline if there is no room for both."""
    room = width - _FIXED
    text = room - _TASK - 1
    if text < _MIN_TEXT:
        # A cell is between the last column and the frame.
        return StreamColumns(max(4, room - _SPARK - 1), _SPARK, 0)
    if text < _SPARK + _ENOUGH_TEXT:
        return StreamColumns(_TASK, 0, text)
    return StreamColumns(_TASK, _SPARK, text - _SPARK)


def column_titles(columns: StreamColumns, *, has_times: bool) -> Line:
    """Return the titles of the columns; the last one has text, or the times until and since the first token.

    Its title stays the same while only some agents have text.
    """
    spark = " last 8 s".ljust(columns.spark + 1) if columns.spark else " "
    titles = f" {'agent':>5} {'state':<11}{'task':<{columns.task}} {'tokens':>6}{'tok/s':>7}{spark}{'TTFT':>7}"
    last = longest_fit(_TIME_TITLES if has_times else _TEXT_TITLES, columns.text)
    return [(f"{titles} {last}" if columns.text else titles, "dim")]


def has_times(lines: Sequence[StreamLine], each: int) -> bool:
    """Whether the times of agents are shown as bars: above their text, or instead of it."""
    busy = [line for line in lines if line.state not in _BLANK_TEXTS]
    return each > 1 or (bool(busy) and all(line.tail is None for line in busy))


def agent_lines(
    line: StreamLine, columns: StreamColumns, each: int, width: int, longest_s: float, here: bool
) -> list[Line]:
    """Return the lines of an agent: figures with text; without text, or above several lines, its times as a bar."""
    first = _spans(line, columns, here)
    if each == 1:
        text = text_window(line.tail, columns.text)[0] if columns.text and line.tail is not None else ""
        text = text or line.without_text
        if not text:
            # A replay has no text, and it may be hidden.
            return [[*first, *_waterfall(line, columns.text - 1, longest_s)]]
        return [[*first, (f" {text}" if columns.text else "", "dim")]]
    first += _waterfall(line, columns.text - 1, longest_s)
    tail = line.tail
    shown = text_window(tail, width - _INDENT - 1, each - 1) if tail is not None and tail.text else []
    shown = shown or [line.without_text]
    lines: list[Line] = [first, *([(" " * _INDENT + part, "dim")] for part in shown)]
    return lines + [[]] * (each - len(lines))


def _waterfall(line: StreamLine, width: int, longest_s: float) -> Line:
    """The time until the first token and the time since then, on a scale that all visible agents share."""
    if width < _MIN_TEXT or longest_s <= 0:
        return []
    waited = round(line.wait_s / longest_s * width)
    written = round((line.wait_s + line.write_s) / longest_s * width) - waited
    return [(" ", ""), ("▒" * waited, "latency"), ("█" * written, "throughput3")]


def _spans(line: StreamLine, columns: StreamColumns, here: bool) -> Line:
    quiet = line.state in ("idle", "waiting")
    return [
        ("›" if here else " ", "cursor" if here else ""),
        (rjust(str(line.agent), 4) + " ", "bold" if here else ""),
        (ljust(f"{line.sign} {line.state}", 12), STATE_STYLES.get(line.state, "dim")),
        (ljust(f"★ {line.task}" if line.primary else line.task, columns.task) + " ", "dim" if quiet else ""),
        (rjust(line.tokens, 6), ""),
        (rjust(line.rate, 7), "bold"),
        (" ", ""),
        *((*line.spark, (" ", "")) if columns.spark else ()),
        (rjust(line.ttft, 7), "dim" if quiet else ""),
    ]


def text_window(tail: TextTail, width: int, lines: int = 1) -> list[str]:
    """Return as much of the end of an answer as fits in `lines` lines of `width` cells.

    It starts at a multiple of a number of characters: what arrives is appended to text that stays where it is, which is
    easier to read than text that moves with each token, and fewer cells are painted. Several lines scroll.
    """
    step = max(1, width // 3 if lines == 1 else 2 * width)
    first = tail.length - len(tail.text)
    start = max(first, tail.length - width * lines) if lines == 1 else first
    start = max(0, -(-start // step) * step)
    while True:
        shown = wrap(sanitize(_from_word(tail.text, max(0, start - first))), width)
        if len(shown) <= lines or lines > 1:
            return shown[-lines:]
        start += step


def _from_word(text: str, start: int) -> str:
    """Omit the rest of a word that begins before `start`; in scripts without spaces, and in long words, nothing."""
    if not start or text[start - 1 : start].isspace():
        return text[start:]
    blank = next((at for at in range(start, min(len(text), start + _LONG_WORD)) if text[at].isspace()), start)
    return text[blank:]
