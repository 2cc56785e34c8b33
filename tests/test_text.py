"""Text that others wrote reaches a terminal through one place, without control characters."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import termios
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.text import (
    display_width,
    escape,
    fold,
    sanitize,
    terminal_size,
    truncate_middle,
    words,
    wrap_words,
    write_text,
)
from swarmtui.tui.lines import shorten, wrap
from tests.cli.programs import ROOT


@given(st.text(st.characters(categories=None)))
def test_what_is_written_has_no_control_characters(text: str) -> None:
    out = io.StringIO()
    write_text(out, text)
    assert out.getvalue().endswith("\n")
    categories = {unicodedata.category(char) for char in out.getvalue() if char not in "\n\t"}
    assert categories.isdisjoint(("Cc", "Cf", "Cs", "Zl", "Zp"))
    out.getvalue().encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_json_means_the_same(text: str) -> None:
    assert json.loads(escape(json.dumps({"key": text}, ensure_ascii=False))) == {"key": text}


def test_escapes_are_visible() -> None:
    assert escape("rm\x1b[2K\r\u202ea\nb") == "rm\\u001b[2K\\u000d\\u202ea\nb"
    assert escape("a\nb\t", keep="") == "a\\u000ab\\u0009"
    assert sanitize("a\x1b]52;c;eA==\x07b") == "ab"


@given(st.text(), st.integers(2, 40))
def test_a_text_cut_in_the_middle_fits_and_keeps_its_end(text: str, columns: int) -> None:
    shown = truncate_middle(text, columns)
    assert display_width(shown) <= columns and (shown == text) == (display_width(text) <= columns)
    assert truncate_middle("--parallel 2 → 4", 12).endswith("2 → 4")


STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "stream", "out", "self._out")
# Documents for machines, and the answer of a process to its parent.
NOT_A_TERMINAL = {
    "swarmtui/sessions/check_answers.py", "swarmtui/sessions/compute_levels.py", "swarmtui/processes/selftest.py",
}  # fmt: skip


WRITING = ("print", "echo", "secho", "write", "writelines")


def _last_name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _terminal_writes() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / "swarmtui").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        # Most modules and calls have none of them; to parse and unparse all takes seconds.
        if not re.search(rf"\b({'|'.join(WRITING)})\(", text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or _last_name(node.func) not in WRITING:
                continue
            called = ast.unparse(node.func)
            owner, _, method = called.rpartition(".")
            writes = method in ("write", "writelines") and owner.removesuffix(".buffer") in STREAMS
            if called in ("print", "click.echo", "click.secho", "os.write") or writes:
                yield name, node


def test_every_write_to_a_terminal_passes_through_one_function() -> None:
    """Constants may be written directly; everything else is escaped."""
    others = []
    found = list(_terminal_writes())
    for name, call in found:
        written = call.args[-1] if call.args else call
        constant = isinstance(written, ast.Constant) or (isinstance(written, ast.Name) and written.id.isupper())
        to_file = ast.unparse(call.func) == "os.write" and ast.unparse(call.args[0]) not in ("1", "2")
        if not constant and not to_file and name not in (*NOT_A_TERMINAL, "swarmtui/text.py"):
            others.append(f"{name}:{call.lineno}: {ast.unparse(call)}")
    # The guardian reports to its parent, which sanitizes it.
    assert [line for line in others if "server_guardian" not in line] == []
    assert len(found) > 5, "the search finds writes"


@pytest.mark.parametrize("folder", ["swarmtui/tui"])
def test_every_text_field_drops_control_characters(folder: str) -> None:
    calls = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / folder).rglob("*.py")
        if re.search("Input|TextArea", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _last_name(node.func) in ("Input", "TextArea", "MaskedInput")
    }
    assert calls == set()


def test_a_line_is_broken_between_words_where_a_terminal_would_break_it_inside_of_one() -> None:
    text = f"changed: --parallel 2 → 4; {'more agents than before, ' * 6}saved: /tmp/a-long-path/{'x' * 50}"
    master, terminal = os.openpty()
    try:
        termios.tcsetwinsize(terminal, (24, 40))
        with os.fdopen(terminal, "w") as stream:
            lines = fold(text, stream).split("\n")
    finally:
        os.close(master)
    assert " ".join(lines) == text and len(lines) > 4
    assert all(len(line) <= 40 for line in lines[:-1]) and lines[-1].startswith("/tmp/a-long-path/")
    assert fold(text, io.StringIO()) == text, "a pipe or a file gets one line"


def test_a_terminal_that_does_not_tell_its_size_has_80_columns() -> None:
    master, terminal = os.openpty()
    try:
        termios.tcsetwinsize(terminal, (0, 0))
        with os.fdopen(terminal, "w") as stream:
            assert terminal_size(stream) == (80, 24)
    finally:
        os.close(master)
    assert terminal_size(io.StringIO()) == (0, 0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("token within 2 s, or", ["token", "within", "2 s,", "or"]),
        ("(80 % sure), 90 % surely", ["(80 % sure),", "90 %", "surely"]),
        ("each 16 tok/s", ["each", "16 tok/s"]),
        ("573 ± 1.2 % at 2:10 left", ["573 ± 1.2 %", "at", "2:10 left"]),
        ("≥ 20 tok/s each", ["≥ 20 tok/s", "each"]),
        ("at 16. Then", ["at", "16.", "Then"]),
        ("--parallel 8 --ctx-size 4096", ["--parallel", "8", "--ctx-size", "4096"]),
    ],
)
def test_a_number_and_its_unit_are_one_word(text: str, parts: list[str]) -> None:
    assert words(text) == parts
    narrow = max(map(len, parts))
    for broken in (wrap_words(text, narrow), wrap(text, narrow)):
        assert " ".join(broken) == text
        assert all(any(part in line for line in broken) for part in parts)


def test_a_text_is_not_cut_between_a_number_and_its_unit() -> None:
    assert shorten("first token within 2 s for all", 22) == "first token within …"
    assert wrap("1,234 requests", 8) == ["1,234", "requests"]
