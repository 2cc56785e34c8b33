"""The help screen: all keys of the screen below it, and the definitions of the figures."""

from __future__ import annotations

from swarmtui.tui.base_screens import Page, Pager
from swarmtui.tui.keys import GROUPS, KeyContext, Keymap
from swarmtui.tui.lines import Line, ljust, wrap

_KEYS = 12
_LABEL = 16

FIGURES = (
    ("C", "concurrency: the number of streams, each with one request in flight"),
    ("output tok/s", "output tokens of all streams in the last second"),
    ("steady", "output tok/s of a level, of all requests, while C were in flight"),
    ("wall", "output tokens of a level / time from the first request sent to the last token, with the drain phase"),
    ("per stream", "live: output tok/s / streams that receive tokens; level: tokens after the first / their time"),
    ("TTFT", "time to first token: first content, reasoning or tool delta - request sent; not the role chunk"),
    ("queue", "requests sent that have no token yet; beside it the queue length that the server reports"),
    ("slowdown", "1 - per stream(C) / per stream(1)"),
    ("scaling", "steady(C) / steady(1)"),
    ("speed-up", "wall time of the same tasks one after the other / wall time at C"),
    ("in flight", "mean number of requests in flight: sum of request times / window"),
    ("▸", "highest throughput before a cliff; the lowest C within 1 % of it"),
    ("▼", "cliff: the first level with three times the TTFT and less than half of the ideal gain in throughput"),
    ("~", "tokens counted as chunks: an estimate, not suitable for publication"),
    ("tokens/J", "output tok/s now / power of all GPUs now; sampled power lags by about 1 s"),
)  # fmt: skip


class HelpScreen(Pager):
    page_title = "help"

    def __init__(self, keys: Keymap, context: KeyContext) -> None:
        super().__init__()
        self._keys, self._shown_context = keys, context

    def update_panels(self) -> None:
        self.query_one(Page).show(help_lines(self._keys, self._shown_context, max(40, self.app.size.width)))


def help_lines(keys: Keymap, context: KeyContext, width: int) -> list[Line]:
    lines: list[Line] = []
    actions = keys.actions(context)
    for group in GROUPS:
        members = [action for action in actions if action.group == group]
        if members:
            lines += [[], [(f" {group}", "title")]]
        for action in members:
            lines.append([
                (f"  {ljust(action.shown, _KEYS)}", "bold"),
                (ljust(action.label, _LABEL), ""),
                (action.tooltip, "dim"),
            ])  # fmt: skip
    lines += [[], [(" Figures", "title")]]
    for name, meaning in FIGURES:
        for number, text in enumerate(wrap(meaning, width - _KEYS - 6)):
            lines.append([(f"  {ljust(name if not number else '', _KEYS + 2)}", "bold"), (text, "dim")])
    note = 'To change keys, add [keymap] to config.toml with the names of the actions, such as more = "plus"'
    return [*lines[1:], [], *([(f" {text}", "dim")] for text in wrap(note, width - 2))]
