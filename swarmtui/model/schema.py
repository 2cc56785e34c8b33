"""How text becomes structs: TOML and JSON in, errors out that name the file, the key and what was expected."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

SCHEMA_VERSION = 1


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what people write by hand: an unknown key is a mistake of theirs, and is refused."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what we write ourselves: an unknown key comes from a newer version, and is ignored."""


class BadInput(Exception):
    """Input that a person can mend: where it is, and what was expected there."""

    def __init__(self, problem: str, *, source: str = "", key: str = "", line: int | None = None) -> None:
        where = source if line is None else f"{source}:{line}"
        super().__init__(": ".join(part for part in (where, key, problem) if part))
        self.problem, self.source, self.key, self.line = problem, source, key, line


def read_toml(text: str, kind: type[T], source: str) -> T:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise BadInput(f"not valid TOML: {error}", source=source, line=int(line.group(1)) if line else None) from None
    return convert(data, kind, source, text)


def read_json(text: str | bytes, kind: type[T], source: str) -> T:
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"not valid JSON: {error}", source=source) from None
    return convert(data, kind, source)


def convert(data: Any, kind: type[T], source: str, text: str = "") -> T:
    """Checked conversion; `text` is the original, to find the line of a wrong key."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _explain(error, kind, data, source, text) from None


def _explain(error: msgspec.ValidationError, kind: Any, data: Any, source: str, text: str) -> BadInput:
    message, _, path = str(error).partition(" - at `")
    steps = _steps(path.rstrip("`"))
    unknown = re.search(r"unknown field `(.+?)`", message)
    if unknown:
        name = unknown.group(1)
        close = difflib.get_close_matches(name, _known_fields(kind, data, steps), n=1)
        message = "unknown key" + (f", did you mean {close[0]}?" if close else "")
        steps = [*steps, name]
    else:
        message = _plain(message)
    key = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).lstrip(".")
    return BadInput(message, source=source, key=key, line=_line_of(steps, text))


_PLAIN_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _plain(message: str) -> str:
    """msgspec's wording without its Python words; that a key may be left out needs no saying."""
    missing = re.search(r"missing required field `(.+?)`", message)
    if missing:
        return f"the key {missing.group(1)} is missing"

    def words(match: re.Match[str]) -> str:
        names = match.group(1).split(" | ")
        return " or ".join(_PLAIN_WORDS[name] for name in names if name != "null" or len(names) == 1)

    name = "|".join(_PLAIN_WORDS)
    message = re.sub(rf"`((?:{name})(?: \| (?:{name}))*)`", words, message)
    return message[:1].lower() + message[1:]


def _steps(path: str) -> list[str | int]:
    return [int(index) if index else name for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path)]


def _known_fields(kind: Any, data: Any, steps: list[str | int]) -> list[str]:
    """Every field name that may stand where the unknown one stood."""
    info: Any = msgspec.inspect.type_info(kind)
    names: set[str] = set()

    def visit(node: Any, rest: list[str | int]) -> None:
        if isinstance(node, msgspec.inspect.UnionType):
            for member in node.types:
                visit(member, rest)
        elif isinstance(node, msgspec.inspect.StructType):
            if not rest:
                names.update(field.encode_name for field in node.fields)
            for field in node.fields:
                if rest and field.encode_name == rest[0]:
                    visit(field.type, rest[1:])
        elif rest and isinstance(rest[0], int) and hasattr(node, "item_type"):
            visit(node.item_type, rest[1:])

    visit(info, steps)
    return sorted(names)


def _line_of(steps: list[str | int], text: str) -> int | None:
    """The line of the last named key, counted through arrays of tables; None where that is not certain."""
    names = [step for step in steps if isinstance(step, str)]
    if not text or not names:
        return None
    lines = text.splitlines()
    start = 0
    for position, step in enumerate(steps):
        if isinstance(step, int) and isinstance(steps[position - 1], str):
            headers = [i for i, line in enumerate(lines) if line.strip() == f"[[{steps[position - 1]}]]"]
            start = headers[step] if step < len(headers) else start
    pattern = re.compile(rf"^\s*(\[+\s*)?([\w.-]+\.)?{re.escape(names[-1])}\s*(=|\]|\.)")
    found = [i for i in range(start, len(lines)) if pattern.match(lines[i])]
    return found[0] + 1 if found else None
