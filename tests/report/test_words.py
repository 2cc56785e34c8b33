"""A comparison is faster, slower, same or not sure yet; no other word for that reaches a user."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import swarmtui
from swarmtui.analysis.compare.verdicts import VerdictWord, verdict_text
from swarmtui.experiments.effects import Standing, standing_text
from swarmtui.report.verdicts import verdict_cell

ROOT = Path(swarmtui.__file__).parent
OTHER_WORDS = re.compile(
    r"\b(no verdict|no ratio|undecided|inconclusive|equivalent|(in)?significant|significantly|lags? behind)\b", re.I
)


def shown_texts(path: Path) -> Iterator[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("package", ["analysis", "cli", "experiments", "report", "state", "tui"])
def test_no_other_word_for_a_verdict_is_shown(package: str) -> None:
    found = [
        (path.name, text)
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in shown_texts(path)
        if OTHER_WORDS.search(text)
    ]
    assert found == []


def test_words_of_verdicts() -> None:
    words: tuple[VerdictWord, ...] = ("faster", "slower", "same", "not sure yet")
    assert [verdict_text(word) for word in words] == list(words)
    assert verdict_text(None) == "after 4 runs" and verdict_cell("refused").text == "✗ not comparable"
    standings: tuple[Standing, ...] = ("best", "tied", "behind", "leads so far", "")
    shown = [standing_text(standing, "out_tps") for standing in standings]
    assert shown == ["", "not sure yet", "slower", "leads so far", ""]
