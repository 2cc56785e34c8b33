"""All keys from the table of actions, and what the figures mean."""

from __future__ import annotations

from swarmtui.tui.keys import GROUPS, Keymap, Where
from swarmtui.tui.lines import Line, left, wrapped
from swarmtui.tui.pager import Page, Pager

_KEYS = 12
_LABEL = 16

FIGURES = (
    ("output tok/s", "tokens of all streams over the last second; steady: while exactly C requests were in flight"),
    ("per stream", "now: output tok/s over the streams that write; of a level: (n - first chunk) / (last - first)"),
    ("TTFT", "first content, reasoning or tool delta - sent; never the role chunk"),
    ("queue", "requests that were sent and have no token yet; beside it what the server says of its own queue"),
    ("wall", "all output tokens / time from the first request sent to the last token; the drain lowers it"),
    ("lost", "contention: 1 - per stream(C) / per stream(1)"),
    ("gain", "steady(C) / steady(1)"),
    ("real C", "achieved concurrency: sum of request times / window; more than 5 % off is flagged"),
    ("▸", "the best throughput before a cliff; within 1 % of it the lowest C"),
    ("▼", "the cliff: the first level with less than 5 % more throughput for three times the TTFT"),
    ("~", "tokens were counted as chunks: near, but not for publishing"),
    ("tokens/J", "output tok/s now / watts of all GPUs now; sampled power lags about a second"),
)  # fmt: skip


class HelpScreen(Pager):
    def __init__(self, keys: Keymap, where: Where) -> None:
        super().__init__()
        self._keys, self._where = keys, where

    def page(self) -> Page:
        return Page("help")

    def fill(self) -> None:
        self.query_one(Page).show(help_lines(self._keys, self._where, max(40, self.app.size.width)))


def help_lines(keys: Keymap, where: Where, width: int) -> list[Line]:
    lines: list[Line] = []
    actions = keys.actions(where)
    for group in GROUPS:
        these = [action for action in actions if action.group == group]
        if these:
            lines += [[], [(f" {group}", "title")]]
        for action in these:
            lines.append([
                (f"  {left(action.shown, _KEYS)}", "bold"),
                (left(action.label, _LABEL), ""),
                (action.tooltip, "dim"),
            ])  # fmt: skip
    lines += [[], [(" What the figures mean", "title")]]
    for name, meaning in FIGURES:
        for number, text in enumerate(wrapped(meaning, width - _KEYS - 6)):
            lines.append([(f"  {left(name if not number else '', _KEYS + 2)}", "bold"), (text, "dim")])
    told = 'Keys can be changed in config.toml, [keymap], by the name of the action: more = "plus"'
    return [*lines[1:], [], *([(f" {text}", "dim")] for text in wrapped(told, width - 2))]
