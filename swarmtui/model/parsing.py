"""Convert TOML, JSON and times to values, with errors that name the file, the key and what was expected."""

from __future__ import annotations

import copy
import re
from functools import reduce
from typing import Any, TypeVar

import msgspec

from swarmtui.model.base import BadInput

T = TypeVar("T")

_ANY = "..."
# Larger integers are not exact in JSON.
MAX_INTEGER = 1 << 53


def parse_toml(text: str, kind: type[T], source: str) -> T:
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise BadInput(f"not valid TOML: {error}", source=source, line=int(line.group(1)) if line else None) from None
    except RecursionError:
        raise BadInput("not valid TOML: nested too deeply", source=source) from None
    except ValueError as error:  # a number of thousands of digits
        raise BadInput(f"not valid TOML: {error}", source=source) from None
    _check_numbers(data, source, "", text)
    return convert(data, kind, source, text)


def _check_numbers(data: Any, source: str, key: str, text: str) -> None:
    """Refuse whole numbers that cannot be stored or sent to another process."""
    if isinstance(data, dict):
        for name, value in data.items():
            _check_numbers(value, source, f"{key}.{name}".lstrip("."), text)
    elif isinstance(data, list):
        for value in data:
            _check_numbers(value, source, key, text)
    elif isinstance(data, int) and abs(data) > MAX_INTEGER:
        raise BadInput(f"the number is larger than {MAX_INTEGER}", source=source, key=key, line=find_line([key], text))


def parse_seconds(text: str, key: str) -> float:
    """Parse `30`, `30s`, `500ms`, `2m`, `8m30s` or `1h`."""
    number = r"(\d+(?:\.\d+)?)\s*"
    if not re.fullmatch(rf"\s*(?:{number}|(?:{number}(?:ms|s|m|h)\s*)+)", text):
        raise BadInput(f"{text!r} is not a time like 500ms, 30s, 8m30s or 1h", key=key)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
    seconds = sum(float(part) * units[unit] for part, unit in re.findall(rf"{number}(ms|s|m|h)?", text))
    if seconds <= 0:
        raise BadInput("must be greater than zero", key=key)
    return seconds


def parse_json(text: str | bytes, kind: type[T], source: str) -> T:
    return convert(decode_json(text, Any, source), kind, source)


def decode_json(text: str | bytes, kind: type[T] | Any, source: str) -> T:
    """Decode and validate in one step, for large files: nothing but the values of `kind` is created.

    `kind` has no tables with free keys: these could not be named in a message.
    """
    try:
        found: T = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise _explain(error, kind, {}, source, "") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        data = text.encode() if isinstance(text, str) else text
        at = re.search(r"\(byte (\d+)\)", str(error))
        line = data.count(b"\n", 0, int(at.group(1)) if at else len(data)) + 1
        raise BadInput(f"not valid JSON: {error}", source=source, line=line) from None
    except RecursionError:
        raise BadInput("not valid JSON: nested too deeply", source=source) from None
    return found


def convert(data: Any, kind: type[T], source: str, text: str = "") -> T:
    """Validate and convert; `text` is the original, in which the line of a wrong key is looked up."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _explain(error, kind, data, source, text) from None


def _explain(error: msgspec.ValidationError, kind: Any, data: Any, source: str, text: str) -> BadInput:
    message, _, path = str(error).partition(" - at `")
    steps = _resolve_free_keys(parse_path(path.rstrip("`")), kind, data, str(error))
    unknown = re.search(r"unknown field `(.+?)`", message)
    missing = re.search(r"missing required field `(.+?)`", message)
    if unknown:
        name = unknown.group(1)
        tables = (node for node in _nodes(kind, steps) if isinstance(node, msgspec.inspect.StructType))
        known = {field.encode_name for table in tables for field in table.fields}
        message = "unknown key" + suggest(name, sorted(known), ", ")
        steps = [*steps, name]
    elif missing:
        message = f"the key {missing.group(1)} is missing" + _expected(_choices(kind, [*steps, missing.group(1)]))
    else:
        wrong = re.match(r"Invalid (?:enum )?value '(.*)'$", message)
        choices = _choices(kind, steps) if wrong else []
        close = suggest(wrong.group(1), choices, "; ") if wrong and choices else ""
        message = _plain_message(message) + _expected(choices) + close
    return BadInput(
        message,
        source=source,
        key=format_path(steps),
        line=find_line(steps, text),
        unknown=unknown is not None,
        missing=missing.group(1) if missing else "",
    )


_PLAIN_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _plain_message(message: str) -> str:
    """Replace Python type names in a message of msgspec, and leave out that a key is optional."""

    def words(match: re.Match[str]) -> str:
        names = match.group(1).split(" | ")
        return " or ".join(_PLAIN_WORDS[name] for name in names if name != "null" or len(names) == 1)

    name = "|".join(_PLAIN_WORDS)
    message = message.replace("enum value", "value")
    message = re.sub(rf"`((?:{name})(?: \| (?:{name}))*)`", words, message)
    return message[:1].lower() + message[1:]


def _expected(choices: list[str]) -> str:
    return f"; expected one of {', '.join(choices)}" if choices else ""


def suggest(name: str, known: list[str], before: str) -> str:
    """Return `before` and "did you mean …?", or an empty text if no known name is similar."""
    import difflib  # imported only to report an error

    close = difflib.get_close_matches(name, known, n=1)
    return f"{before}did you mean {close[0]}?" if close else ""


def parse_path(path: str) -> list[str | int]:
    """Split `$.a.b[2].c` or `.a.b[2].c` into its parts; `[...]` stands for any key of a table with free keys."""
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path)
    return [name or (index if index == _ANY else int(index)) for name, index in parts]


def format_path(steps: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def _resolve_free_keys(steps: list[str | int], kind: Any, data: Any, message: str) -> list[str | int]:
    """Replace `[...]` by the free key that alone causes the same error, because msgspec does not name it."""
    while _ANY in steps:
        position = steps.index(_ANY)
        for name in reduce(lambda table, step: table[step], steps[:position], data):
            alone = copy.deepcopy(data)
            table = reduce(lambda table, step: table[step], steps[:position], alone)
            for other in [key for key in table if key != name]:
                del table[other]
            try:
                msgspec.convert(alone, kind)
            except msgspec.ValidationError as error:
                if str(error) == message:
                    steps = [*steps[:position], name, *steps[position + 1 :]]
                    break
        else:
            return [step for step in steps if step != _ANY]
    return steps


def _choices(kind: Any, steps: list[str | int]) -> list[str]:
    """List the values of a tag key or of a key with fixed choices."""
    nodes = _nodes(kind, steps[:-1])
    tags = {node.tag for node in nodes if isinstance(node, msgspec.inspect.StructType) and node.tag_field == steps[-1]}
    choices = {
        value for node in _nodes(kind, steps) if isinstance(node, msgspec.inspect.LiteralType) for value in node.values
    }
    return sorted(str(name) for name in tags | choices)


def _nodes(kind: Any, steps: list[str | int]) -> list[Any]:
    """List the types that are allowed at a path, with the members of unions separately."""
    found: list[Any] = []

    def visit(node: Any, rest: list[str | int]) -> None:
        if isinstance(node, msgspec.inspect.UnionType):
            for member in node.types:
                visit(member, rest)
        elif isinstance(node, msgspec.inspect.Metadata):
            visit(node.type, rest)
        elif not rest:
            found.append(node)
        elif isinstance(node, msgspec.inspect.StructType):
            for field in node.fields:
                if field.encode_name == rest[0]:
                    visit(field.type, rest[1:])
        elif isinstance(node, msgspec.inspect.DictType):
            visit(node.value_type, rest[1:])
        elif isinstance(rest[0], int) and hasattr(node, "item_type"):
            visit(node.item_type, rest[1:])

    visit(msgspec.inspect.type_info(kind), steps)
    return found


def find_line(steps: list[str | int], text: str) -> int | None:
    """Find the line on which the last key of the path is set; None if it cannot be determined."""
    names = [step for step in steps if isinstance(step, str)]
    if not text or not names:
        return None
    lines = text.splitlines()
    start = 0
    for position, step in enumerate(steps):
        if isinstance(step, int) and isinstance(steps[position - 1], str):
            headers = [i for i, line in enumerate(lines) if line.strip() == f"[[{steps[position - 1]}]]"]
            start = headers[step] if step < len(headers) else start
    for depth in range(1, len(names)):
        header = f"[{'.'.join(names[:depth])}]"
        start = next((i for i in range(start, len(lines)) if lines[i].strip() == header), start)
    for name in reversed(names):
        pattern = re.compile(rf"^\s*(\[+\s*)?([\w.-]+\.)?{re.escape(name)}\s*(=|\]|\.)")
        found = [i for i in range(start, len(lines)) if pattern.match(lines[i])]
        if found:
            return found[0] + 1
    return None
