"""What an answer must hold to be right, and what may be said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from swarmtui.model.schema import BadInput, InputStruct

Verdict = Literal["pass", "fail", "pass in reasoning", "empty content", "truncated", "error"]

PASSES: tuple[Verdict, ...] = ("pass", "pass in reasoning")

Word = Annotated[str, Meta(min_length=1)]
Group = Annotated[tuple[Word, ...], Meta(min_length=1)]


class AnswerCheck(InputStruct, frozen=True, kw_only=True):
    """Everything that is given must hold.

    `all`: each of these words; `any`: of each group at least one; `case`: as they are written. `regex`: each is found
    somewhere. `python`: the code of the answer compiles; it is never run. `schema`: the answer is JSON of this shape.
    """

    all: tuple[Word, ...] = ()
    any: tuple[Group, ...] = ()
    case: bool = False
    regex: tuple[Word, ...] = ()
    python: bool = False
    schema: dict[str, Any] | None = None


SCHEMA_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMA_KEYS: dict[str, type | tuple[type, ...]] = {
    "type": str, "properties": dict, "required": list, "items": dict, "enum": list, "const": object,
    "minItems": int, "maxItems": int, "minimum": (int, float), "maximum": (int, float), "minLength": int,
    "maxLength": int, "additionalProperties": bool, "title": str, "description": str,
}  # fmt: skip


def find_check_problems(check: AnswerCheck, source: str, key: str) -> Iterator[BadInput]:
    """What types cannot say."""
    if not (check.all or check.any or check.regex or check.python or check.schema is not None):
        yield BadInput("asks for nothing; give all, any, regex, python or schema", source=source, key=key)
    for place, pattern in enumerate(check.regex):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            yield BadInput(f"is no regular expression: {error}", source=source, key=f"{key}.regex[{place}]")
    if check.schema is not None:
        yield from _wrong_with_schema(check.schema, source, f"{key}.schema")


def _wrong_with_schema(schema: dict[str, Any], source: str, key: str) -> Iterator[BadInput]:
    """A part of JSON Schema: what models are asked for in practice. The rest is refused rather than ignored."""
    for name, value in schema.items():
        known = _SCHEMA_KEYS.get(name)
        if known is None:
            yield BadInput(f"is not among {', '.join(_SCHEMA_KEYS)}", source=source, key=f"{key}.{name}")
        elif not _is_a(value, known) or (isinstance(value, bool) and name[:3] in ("min", "max")):
            yield BadInput("has a value of the wrong type", source=source, key=f"{key}.{name}")
        elif name == "type" and value not in SCHEMA_TYPES:
            yield BadInput(f"{value!r} is none of {', '.join(SCHEMA_TYPES)}", source=source, key=f"{key}.type")
        elif name == "items":
            yield from _wrong_with_schema(value, source, f"{key}.items")
        elif name == "properties":
            for field, inner in value.items():
                if isinstance(inner, dict):
                    yield from _wrong_with_schema(inner, source, f"{key}.properties.{field}")
                else:
                    yield BadInput("must be a table", source=source, key=f"{key}.properties.{field}")


def _is_a(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind)
