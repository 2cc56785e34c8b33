"""How wide a page of text may be: as the terminal that it goes to, else as wide as a post can be."""

from __future__ import annotations

import os
import sys

WIDEST = 100
_NARROWEST = 40


def columns() -> int:
    """Of stdout: what is piped or kept in a file is always laid out the same."""
    if not sys.stdout.isatty():
        return WIDEST
    try:
        there = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return WIDEST
    return max(_NARROWEST, min(WIDEST, there)) if there else WIDEST
