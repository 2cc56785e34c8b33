"""Prepare text from servers, files and users for a terminal: remove or escape control characters, and write it."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TextIO

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|$)"  # OSC, DCS and similar, up to their end
    r"|\x1b[ -/]*[0-~]?",  # all shorter ones
    re.DOTALL,
)
_BLANKS = re.compile(r"\s+")
# The blank between a number and its unit or what it counts, the one after a sign before a number, and that of `% sure`.
_NUMBER_BLANK = re.compile(
    r"(?<!\S)([(~+−±≤≥]*\d(?:[\d.,:/–]*\d)?) (?=[%°±]|[^\W\d_])|(?<!\S)(\(?[±≤≥]) (?=\d)|(?<=\d %) (?=sure\b)"
)
_NO_BREAK = "\xa0"
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# Variation selectors and skin tones: terminals disagree on the width of an emoji with one.
_MODIFIERS = re.compile("[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")
# Letters without a shape, in Hangul: blanks, of no cell, one or two.
_FILLERS = re.compile("[\u115f\u1160\u3164\uffa0]")


def sanitize(text: str) -> str:
    """Return one line without control characters, escape sequences and changes of text direction."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    return _sanitized_cell(text) if len(text) <= _CELL else _sanitized(text)


def _sanitized(text: str) -> str:
    text = _BLANKS.sub(" ", _settled(text))
    return (text if text.isprintable() else "".join(char for char in text if not _is_invisible(char))).strip()


def _settled(text: str) -> str:
    """Remove or replace what terminals show differently; letters and marks are composed where they can be."""
    return unicodedata.normalize("NFC", _FILLERS.sub(" ", _MODIFIERS.sub("", _SEQUENCES.sub("", text))))


def escape(text: str, *, keep: str = "\n\t") -> str:
    """Make control characters and changes of text direction visible, as \\u001b; in JSON the meaning stays the same."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or not _is_invisible(char) else _escaped(char) for char in text)


def write_text(stream: TextIO, text: str, end: str = "\n") -> None:
    """Write text to a terminal or a pipe. All text that others may have written passes through here."""
    stream.write(escape(text) + end)


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    write_text(stream, text, "\n" if nl else "")
    stream.flush()


def fold(text: str, stream: TextIO) -> str:
    """Break a long line between words, where a terminal would break it inside of them; for a pipe or file keep it."""
    columns = terminal_size(stream).columns
    return text if not columns or display_width(text) <= columns else "\n".join(wrap_words(text, columns))


def words(text: str) -> list[str]:
    """Split at blanks, but not a number from its unit: `within`, `2 s`, `(80 % sure)`"""
    return [word.replace(_NO_BREAK, " ") for word in _joined_numbers(text).split(" ")]


def wrap_words(text: str, columns: int, first: str = "", others: str = "") -> list[str]:
    """Break text into lines between its words only: a flag or an id can be copied."""
    import textwrap

    lines = textwrap.wrap(
        _joined_numbers(text), columns, initial_indent=first, subsequent_indent=others, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _joined_numbers(text: str) -> str:
    return _NUMBER_BLANK.sub(lambda found: found[0][:-1] + _NO_BREAK, text)


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Return the size of the terminal that a stream is, 80×24 if it does not tell; zeros if it is not a terminal."""
    try:
        if not stream.isatty():
            return os.terminal_size((0, 0))
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = lines = 0
    return os.terminal_size((columns or 80, lines or 24))


def write_document(stream: TextIO, content: bytes) -> None:
    """Write a file unchanged to a pipe, and as text to a terminal."""
    if stream.isatty():
        write_text(stream, content.decode(errors="replace").replace("\r\n", "\n"), end="")
    else:
        stream.buffer.write(content)


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in _INVISIBLE


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def count_noun(number: int, one: str, many: str = "") -> str:
    """`1 request`, `2 requests`; `many` is the plural where it is not the noun with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def name_errors(counts: Mapping[str, int]) -> str:
    """Name the kinds of errors of requests, the commonest first: `12 idle_timeout, 3 refused`."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda kind: -kind[1]))


def brief_flags(text: str) -> str:
    """Shorten server flags to the first of them with its value: `parallel 2 …` of `--parallel 2 --ctx-size 4096`."""
    if not text.startswith("--"):
        return text
    first, more, _ = text.removeprefix("--").partition(" --")
    return f"{first} …" if more else first


def display_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return _cell_width(text) if len(text) <= _CELL else _width(text)


def _width(text: str) -> int:
    return sum(width for _, width in _clusters(text))


def truncate(text: str, columns: int) -> str:
    if display_width(text) <= columns:
        return text
    kept, used = "", 1
    for cluster, width in _clusters(text):
        used += width
        if used > columns:
            break
        kept += cluster
    return kept + "…"


def truncate_middle(text: str, columns: int) -> str:
    """Shorten to a number of columns, with an ellipsis in the middle: `--para…2 → 4`"""
    if display_width(text) <= columns:
        return text
    end, used = "", 0
    for cluster, width in reversed(list(_clusters(text))):
        if used + width > columns // 2:
            break
        end, used = cluster + end, used + width
    return truncate(text, columns - used) + end


def pad(text: str, columns: int, *, right: bool) -> str:
    blanks = " " * (columns - display_width(text))
    return blanks + text if right else text + blanks


def _clusters(text: str) -> Iterator[tuple[str, int]]:
    """Return what is shown as one character, with its columns: those of a cluster are not the sum of its parts."""
    from wcwidth import iter_graphemes, wcswidth

    return ((cluster, max(0, wcswidth(cluster))) for cluster in iter_graphemes(text))


# A table is laid out again whenever one of its cells changes, and several times: those of short texts are kept.
_CELL = 80
_sanitized_cell, _cell_width = lru_cache(4096)(_sanitized), lru_cache(4096)(_width)


def sanitize_lines(text: str) -> list[str]:
    """Sanitize text of several lines; line breaks and blanks are kept."""
    lines = _settled(text.replace("\r\n", "\n")).expandtabs(4).split("\n")
    return ["".join(char for char in line if not _is_invisible(char)) for line in lines]
