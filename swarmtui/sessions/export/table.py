"""A table as data, before anybody draws it."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """`right` says of each column whether it holds numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    note: str = ""
