"""Text that terminals measure differently, in lines of cells.

A cluster of several characters, such as a Tamil or Khmer syllable, takes as many cells as its characters in one
terminal and fewer in another. It gets the most that any of them uses. In lines, stand-ins of private use take its
place, one per cell: Textual and Rich measure and cut these as we do. `terminal_cells` writes the cluster itself.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

# Stand-ins for the first cell of a cluster, in order of appearance, and one for all its further cells.
_FIRST_STAND_IN, _LAST_STAND_IN = 0xF0000, 0xFFFFD
CONTINUED = "\U00100000"
_TOO_MANY = "·"
# Vowels and final consonants of Hangul, which follow a first one without a cell of their own, or have one each.
_JAMO = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
_REGIONAL = range(0x1F1E6, 0x1F200)


class Cluster(NamedTuple):
    text: str
    cells: int


# Both grow with the alphabets that were shown, not with the text.
_by_stand_in: dict[str, Cluster] = {}
_stand_ins: dict[str, str] = {}
# Characters of one cell in every terminal; at first those of our own texts and pictures: the first paint does not wait
# for the import of `wcwidth`.
OWN_CHARACTERS = frozenset(
    "…–—−·×±→←↑↓⇧≤≥“”‘’‹›✓✖▸▾▼▲△▽●○◌◔◆◇" + "".join(map(chr, (*range(0x20, 0x7F), *range(0x2500, 0x25A0))))
)
_narrow: set[str] = {*OWN_CHARACTERS}
_MAX_KNOWN = 10_000


def with_stand_ins(text: str) -> str:
    """Replace the clusters on which terminals disagree; Rich then counts their cells right.

    Text with stand-ins stays as it is.
    """
    if text.isascii() or _narrow.issuperset(text):
        return text
    from wcwidth import iter_graphemes

    clusters: list[str] = []
    for cluster in iter_graphemes(text):
        if clusters and _is_mark(cluster) and not clusters[-1].isspace():
            # Some vowels count as clusters; a terminal may add them to the cell to their left.
            clusters[-1] += cluster
        else:
            clusters.append(cluster)
    return "".join(map(_stand_in, clusters))


def _is_mark(cluster: str) -> bool:
    return unicodedata.category(cluster[0]).startswith("M") or _is_jamo(cluster[0])


def _is_jamo(char: str) -> bool:
    return any(ord(char) in jamo for jamo in _JAMO)


def cluster_of(stand_in: str) -> Cluster | None:
    """The cluster that a stand-in is for; None if it is an ordinary character."""
    return _by_stand_in.get(stand_in)


class ClusterText(Text):
    """Text in its cells, in which styles have the positions of the original's characters: a cluster has one style."""

    def __init__(self, original: str) -> None:
        super().__init__(with_stand_ins(original), no_wrap=True, overflow="ignore", end="")
        self._original = original

    def stylize(self, style: str | Style, start: int = 0, end: int | None = None) -> None:
        super().stylize(style, self._position(start, -1), None if end is None else self._position(end, 1))

    def stylize_before(self, style: str | Style, start: int = 0, end: int | None = None) -> None:
        super().stylize_before(style, self._position(start, -1), None if end is None else self._position(end, 1))

    def _position(self, at: int, step: int) -> int:
        """Return where a character of the original is; inside of a cluster the begin (-1) or the end of it (1)."""
        text = self._original
        while 0 < at < len(text) and with_stand_ins(text[:at]) + with_stand_ins(text[at:]) != with_stand_ins(text):
            at += step
        return len(with_stand_ins(text[:at])) + max(0, at - len(text))


def _stand_in(cluster: str) -> str:
    known = _stand_ins.get(cluster)
    if known is not None:
        return known
    if _is_mark(cluster):
        # A mark without a letter would change the cell to its left.
        return _stand_in(cluster[1:]) if cluster[1:] else ""
    cells = _most_cells(cluster)
    shown = cluster
    if cells == 0:
        shown = ""
    elif not _is_agreed(cluster, cells):
        if len(_by_stand_in) > _LAST_STAND_IN - _FIRST_STAND_IN:
            return _TOO_MANY
        first = chr(_FIRST_STAND_IN + len(_by_stand_in))
        _by_stand_in[first] = Cluster(cluster, cells)
        shown = first + CONTINUED * (cells - 1)
    elif cells == len(cluster) == 1 and len(_narrow) < _MAX_KNOWN:
        _narrow.add(cluster)
        return cluster
    _stand_ins[cluster] = shown
    return shown


def _is_agreed(cluster: str, cells: int) -> bool:
    """Whether terminals and Rich use the same number of cells: those of its first character."""
    from wcwidth import wcswidth, wcwidth

    first = cluster[0]
    return (
        cell_len(first) == wcwidth(first) == cells == wcswidth(cluster)
        and all(unicodedata.combining(char) and cell_len(char) == 0 for char in cluster[1:])
        and ord(first) not in _REGIONAL
    )


def _most_cells(cluster: str) -> int:
    """The most cells that a terminal uses: those of the whole, or of all its characters one by one."""
    from wcwidth import wcswidth

    return max(0, wcswidth(cluster), sum(_cells_of(char) for char in cluster))


def _cells_of(char: str) -> int:
    from wcwidth import wcwidth

    if ord(char) in _REGIONAL:
        return 2
    spacing = unicodedata.category(char) == "Mc" or _is_jamo(char)
    return max(int(spacing), wcwidth(char), cell_len(char))
