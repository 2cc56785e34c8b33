"""Check answers: search, parse or compile their content and reasoning; never run them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec

from swarmtui.model.answer_check import AnswerCheck, AnswerVerdict

# Longer answers are checked up to here, to bound the time of a check.
MAX_CHARS = 200_000

_FENCED = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_PYTHON = ("", "python", "py", "python3")
_JSON = ("", "json")
_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def check_answer(check: AnswerCheck, content: str, reasoning: str, *, cut: bool = False) -> AnswerVerdict:
    """Return the verdict on an answer; `cut` answers ended at their token limit.

    A regular expression can take arbitrarily long: run this in a process that can be ended.
    """
    content, reasoning = content[:MAX_CHARS], reasoning[:MAX_CHARS]
    if content.strip() and check_passes(check, content):
        return "pass"
    if reasoning.strip() and (check_passes(check, reasoning) or check_passes(check, f"{reasoning}\n{content}")):
        return "pass in reasoning"
    if cut:
        return "truncated"
    return "fail" if content.strip() else "empty content"


def check_passes(check: AnswerCheck, text: str) -> bool:
    return (
        _has_words(check, text)
        and all(re.search(pattern, text, re.MULTILINE) for pattern in check.regex)
        and (not check.python or is_valid_python(text))
        and (check.schema is None or any(matches_schema(value, check.schema) for value in _json_values(text)))
    )


def _has_words(check: AnswerCheck, text: str) -> bool:
    def fold(word: str) -> str:
        return word if check.case else word.casefold()

    folded = fold(text)
    every = all(fold(word) in folded for word in check.all)
    return every and all(any(fold(word) in folded for word in group) for group in check.any)


def is_valid_python(text: str) -> bool:
    """Whether each block of Python, or the whole text without blocks, compiles; nothing is run."""
    blocks = [code for language, code in _FENCED.findall(text) if language.lower() in _PYTHON]
    if not blocks and "```" in text:
        return False
    return all(map(_compiles, blocks or [text]))


def _compiles(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<answer>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return bool(code.strip())


def _json_values(text: str) -> Iterator[Any]:
    """Yield the whole text, and each fenced block, that is valid JSON."""
    for part in (text, *(code for language, code in _FENCED.findall(text) if language.lower() in _JSON)):
        try:
            yield msgspec.json.decode(part)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue


def matches_schema(value: Any, schema: dict[str, Any]) -> bool:
    """Validate against the subset of JSON Schema that `model/answer_check.py` accepts."""
    if "type" in schema and not _is(value, schema["type"]):
        return False
    if "enum" in schema and not any(_same(value, other) for other in schema["enum"]):
        return False
    if "const" in schema and not _same(value, schema["const"]):
        return False
    if isinstance(value, dict):
        return _fits_object(value, schema)
    if isinstance(value, list):
        most, least = schema.get("maxItems", len(value)), schema.get("minItems", 0)
        return least <= len(value) <= most and all(matches_schema(item, schema.get("items", {})) for item in value)
    if isinstance(value, str):
        return bool(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
    if _number(value):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def _fits_object(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    if schema.get("additionalProperties") is False and any(name not in known for name in value):
        return False
    return all(matches_schema(part, known[name]) for name, part in value.items() if name in known)


def _is(value: Any, kind: str) -> bool:
    if kind in _TYPES:
        return isinstance(value, _TYPES[kind])
    return _number(value) and (kind == "number" or float(value).is_integer())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    """Compare JSON values, in which true is not 1."""
    return isinstance(value, bool) == isinstance(other, bool) and value == other
