"""Base structs of what users write and of what swarmtui stores, and the error for input that a user can correct."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

SCHEMA_VERSION = 4
# Raised by a decoder for invalid JSON or an unexpected type, invalid UTF-8, and endless nesting.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

P = ParamSpec("P")
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class InputStruct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of structs that users write by hand: unknown keys are refused, because they are probably typos."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Base of structs that swarmtui writes: unknown keys are ignored, because a newer version may have added them."""


class Versioned(Stored, frozen=True, kw_only=True):
    """The part of a stored file that all versions have in common."""

    schema: int = SCHEMA_VERSION


def copy_fields(kind: type[S], source: object, /, **others: Any) -> S:
    """Make a struct of what `source` has under the names of its fields, and of `others`."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__ if hasattr(source, name)} | others)


class BadInput(Exception):
    """Input that the user can correct: what is wrong, and in which file, key and line.

    `unknown`: the key itself is not known. `missing` is the name of a key that `key` should contain.
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str = "",
        key: str = "",
        line: int | None = None,
        unknown: bool = False,
        missing: str = "",
    ) -> None:
        where = source if line is None else f"{source}:{line}"
        super().__init__(": ".join(part for part in (where, key, problem) if part))
        self.problem, self.source, self.key, self.line = problem, source, key, line
        self.unknown, self.missing = unknown, missing

    @property
    def each(self) -> Sequence[BadInput]:
        """The errors, one per line of output: several where all of a command line were collected."""
        return (self,)


class SettingFailed(Exception):
    """A setting of the machine could not be changed; `output` is the end of what the command of the user printed."""

    def __init__(self, problem: str, output: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.output = tuple(output)


class SeveralErrors(BadInput):
    """All mistakes of one input, so that the user can correct them together."""

    def __init__(self, errors: Sequence[BadInput]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self._errors = tuple(errors)

    @property
    def each(self) -> Sequence[BadInput]:
        return self._errors


class Mistakes:
    """Collects what is wrong with an input, so that the user can correct all of it together.

    >>> share = mistakes.catch(parse_share, text)
    >>> mistakes.raise_all()
    """

    def __init__(self, found: Sequence[BadInput] = ()) -> None:
        self.found = list(found)

    def catch(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `work` returns, or None after an error."""
        try:
            return work(*args, **kwargs)
        except BadInput as error:
            self.found += error.each
            return None

    def catch_as(self, key: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `work` returns, or None after an error, which then names this key."""
        try:
            return work(*args, **kwargs)
        except BadInput as error:
            own = error.key == key.removeprefix("--")
            self.found.append(BadInput(error.problem if own else str(error), key=key))
            return None

    def raise_all(self) -> None:
        """Raise what was found, each once; nothing if nothing was."""
        found = list({str(error): error for error in self.found}.values())
        if found:
            raise found[0] if len(found) == 1 else SeveralErrors(found)


def check_schema(schema: int, source: str) -> None:
    """Refuse a file that a version with another schema wrote."""
    if schema != SCHEMA_VERSION:
        advice = "update swarmtui" if schema > SCHEMA_VERSION else "read it with the version that wrote it"
        raise BadInput(f"has schema {schema}, but this version reads schema {SCHEMA_VERSION}; {advice}", source=source)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say as BadInput why the file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise BadInput("no such file", source=str(path)) from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Say as BadInput why the file or directory cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(path)) from None
