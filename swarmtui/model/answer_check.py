"""The conditions that a correct answer meets, and the verdicts on an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from swarmtui.model.base import BadInput, InputStruct

AnswerVerdict = Literal["pass", "fail", "pass in reasoning", "empty content", "truncated", "error"]

PASSES: tuple[AnswerVerdict, ...] = ("pass", "pass in reasoning")

Word = Annotated[str, Meta(min_length=1)]
Group = Annotated[tuple[Word, ...], Meta(min_length=1)]


class AnswerCheck(InputStruct, frozen=True, kw_only=True):
    """Conditions on an answer; all that are given must hold.

    `all`: each of these words occurs. `any`: at least one word of each group occurs. `case`: compare case-sensitively.
    `regex`: each pattern is found somewhere. `python`: the code in the answer compiles; it is never run. `schema`: the
    answer is JSON of this schema.
    """

    all: tuple[Word, ...] = ()
    any: tuple[Group, ...] = ()
    case: bool = False
    regex: tuple[Word, ...] = ()
    python: bool = False
    schema: dict[str, Any] | None = None


SCHEMA_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMA_KEYS: dict[str, Any] = {
    "type": str, "properties": dict, "required": list, "items": dict, "enum": list, "const": object,
    "minItems": int, "maxItems": int, "minimum": (int, float), "maximum": (int, float), "minLength": int,
    "maxLength": int, "additionalProperties": bool, "title": str, "description": str,
}  # fmt: skip


def find_check_problems(check: AnswerCheck, source: str, key: str) -> Iterator[BadInput]:
    """Yield the problems that the types do not exclude."""
    if not (check.all or check.any or check.regex or check.python or check.schema is not None):
        yield BadInput("empty; give all, any, regex, python or schema", source=source, key=key)
    for index, pattern in enumerate(check.regex):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            yield BadInput(f"not a valid regular expression: {error}", source=source, key=f"{key}.regex[{index}]")
    if check.schema is not None:
        yield from _find_schema_problems(check.schema, source, f"{key}.schema")


def _find_schema_problems(schema: dict[str, Any], source: str, key: str) -> Iterator[BadInput]:
    """Yield the parts of a schema that are not supported; they are refused, so that no condition is ignored."""
    for name, value in schema.items():
        known = _SCHEMA_KEYS.get(name)
        if known is None:
            yield BadInput(
                f"not supported; expected one of {', '.join(_SCHEMA_KEYS)}", source=source, key=f"{key}.{name}"
            )
        elif not isinstance(value, known) or (isinstance(value, bool) and name[:3] in ("min", "max")):
            yield BadInput("the value has the wrong type", source=source, key=f"{key}.{name}")
        elif name == "type" and value not in SCHEMA_TYPES:
            yield BadInput(f"{value!r} is not one of {', '.join(SCHEMA_TYPES)}", source=source, key=f"{key}.type")
        elif name == "items":
            yield from _find_schema_problems(value, source, f"{key}.items")
        elif name == "properties":
            for field, inner in value.items():
                if isinstance(inner, dict):
                    yield from _find_schema_problems(inner, source, f"{key}.properties.{field}")
                else:
                    yield BadInput("must be a table", source=source, key=f"{key}.properties.{field}")
