"""Check answers, and survive any text in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.answers import check_answer, check_passes, is_valid_python, matches_schema
from swarmtui.model.answer_check import AnswerCheck, find_check_problems

DOCSTRING = AnswerCheck(all=("Args", "Returns"), any=(("sorted", "in order"), ("index",)))
GOOD = "Args: items, sorted. Returns: the index."


@pytest.mark.parametrize(
    ("content", "reasoning", "how", "expected"),
    [
        (GOOD, "", {}, "pass"),
        (GOOD.lower(), "", {}, "pass"),
        ("I do not know.", "", {}, "fail"),
        ("I do not know.", GOOD, {}, "pass in reasoning"),
        ("", GOOD, {}, "pass in reasoning"),
        ("Returns the index", "Args: a list in order", {}, "pass in reasoning"),
        ("", "hm", {}, "empty content"),
        ("  \n", "", {}, "empty content"),
        ("Args: items, sor", "", {"cut": True}, "truncated"),
        ("", "Let me think", {"cut": True}, "truncated"),
        (GOOD, "", {"cut": True}, "pass"),
    ],
)
def test_verdicts(content: str, reasoning: str, how: dict[str, bool], expected: str) -> None:
    assert check_answer(DOCSTRING, content, reasoning, **how) == expected


def test_length_of_empty_text_is_checked() -> None:
    schema = {"type": "string", "minLength": 1}
    assert matches_schema("a", schema) and not matches_schema("", schema)


def test_case_sensitive_check() -> None:
    assert not check_passes(AnswerCheck(all=("Args",), case=True), "args")
    assert check_passes(AnswerCheck(all=("Args",), case=True), "Args")


def test_each_any_group_needs_one_match() -> None:
    check = AnswerCheck(any=(("ceil", "round up"), ("last page", "remainder")))
    assert check_passes(check, "Round up, for the remainder")
    assert not check_passes(check, "ceil")


def test_regex_anchors_match_each_line() -> None:
    assert check_passes(AnswerCheck(regex=(r"^def test_\w+",)), "Here:\ndef test_one(): pass")
    assert not check_passes(AnswerCheck(regex=(r"^def test_\w+", "nowhere")), "def test_one(): pass")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", True),
        ("Some words\n```python\nx = 1\n```\nand\n```py\ny = 2\n```", True),
        ("```python\nx = 1\n```\n```python\nx = = 2\n```", False),
        ("```bash\nrm -rf /\n```\n", False),
        ("```python\nreturn 3\n```", False),
        ("```python\nx = 1\n", False),
        ("This is no code at all.", False),
        ("```python\n\n```", False),
        ("x = '\0'", False),
        ("(" * 5000, False),
    ],
)
def test_python_blocks_must_compile(text: str, expected: bool) -> None:
    assert is_valid_python(text) is expected


def test_code_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert is_valid_python(f"open({str(mark)!r}, 'w').close()")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ({"a": 1}, {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}, True),
        ({"a": "1"}, {"type": "object", "properties": {"a": {"type": "integer"}}}, False),
        ({"b": 1}, {"type": "object", "required": ["a"]}, False),
        ({"a": 1, "b": 2}, {"properties": {"a": {}}, "additionalProperties": False}, False),
        ([1, 2], {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, True),
        ([1, "x"], {"type": "array", "items": {"type": "number"}}, False),
        (True, {"type": "integer"}, False),
        (1, {"enum": [True]}, False),
        (2.0, {"type": "integer"}, True),
        (5, {"minimum": 6}, False),
        ("abc", {"maxLength": 2}, False),
        (None, {"type": "null"}, True),
        ("x", {"const": "y"}, False),
    ],
)
def test_schema_validation(value: Any, schema: dict[str, Any], expected: bool) -> None:
    assert matches_schema(value, schema) is expected


def test_json_is_found_alone_or_in_a_block() -> None:
    check = AnswerCheck(schema={"type": "object", "required": ["ok"]})
    assert check_passes(check, '{"ok": true}')
    assert check_passes(check, 'Here it is:\n```json\n{"ok": true}\n```\n')
    assert not check_passes(check, 'Here it is: {"ok": true')


@given(st.text(max_size=400), st.text(max_size=200), st.booleans())
def test_check_accepts_any_text(content: str, reasoning: str, cut: bool) -> None:
    check = AnswerCheck(all=("a",), regex=(r"\w+",), python=True, schema={"type": "object"})
    assert check_answer(check, content, reasoning, cut=cut) in (
        "pass",
        "fail",
        "pass in reasoning",
        "empty content",
        "truncated",
    )


@pytest.mark.parametrize(
    ("check", "key"),
    [
        (AnswerCheck(), "check"),
        (AnswerCheck(regex=("fine", "((")), "check.regex[1]"),
        (AnswerCheck(schema={"tipe": "object"}), "check.schema.tipe"),
        (AnswerCheck(schema={"type": "thing"}), "check.schema.type"),
        (AnswerCheck(schema={"minItems": True}), "check.schema.minItems"),
        (AnswerCheck(schema={"properties": {"a": {"type": 4}}}), "check.schema.properties.a.type"),
        (AnswerCheck(schema={"properties": {"a": 4}}), "check.schema.properties.a"),
        (AnswerCheck(schema={"items": {"enum": 3}}), "check.schema.items.enum"),
    ],
)
def test_invalid_check_names_its_key(check: AnswerCheck, key: str) -> None:
    (problem,) = find_check_problems(check, "file.toml", "check")
    assert (problem.source, problem.key) == ("file.toml", key)
