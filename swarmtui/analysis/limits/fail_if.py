"""Parse and evaluate `--fail-if` conditions such as `ttft_p50>1s or out_tps_steady@4<200`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarmtui.analysis.limits.quantities import Quantity, did_you_mean, find_quantity, null_reason, parse_amount
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.plan import load_title
from swarmtui.model.session import Level
from swarmtui.numbers import short, short_percent

_KEY = "--fail-if"
_MAX_DEPTH = 50
_TOKENS = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>\d+(?:\.\d+)?|\.\d+)(?:\s*(?P<unit>%|(?:tok/s|us|ms|s|m)(?![A-Za-z0-9_/]))|(?P<odd>[A-Za-z]+))?"
    r"|(?P<sign>>=|<=|==|!=|>|<|@|\(|\)))"
)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
# The signs for which an interval can be on one side of the limit.
_ORDER = (">", ">=", "<", "<=")


class LimitResult(Stored, frozen=True, kw_only=True):
    """Whether a condition is true; null if a figure that could decide is missing. `because` lists what decided.

    `unsure`: it is null because the limit is within the interval of such a figure.
    """

    true: bool | None
    unsure: bool = False
    because: tuple[str, ...] = ()

    @property
    def missed(self) -> bool:
        """A condition without figures counts as missed, so that a script does not pass by accident."""
        return self.true is not False and not self.unsure


class _Compare(NamedTuple):
    name: str
    quantity: Quantity
    at: int | None
    sign: str
    limit: float
    text: str


class _Group(NamedTuple):
    """Conditions joined by `or` if `decisive` is true, else by `and`: one part with that result decides."""

    decisive: bool
    parts: tuple[_Node, ...]


_Node = _Compare | _Group


class FailCondition(NamedTuple):
    """A parsed condition; `text` is its source."""

    text: str
    node: _Node

    def evaluate(self, levels: Sequence[Level]) -> LimitResult:
        return _evaluate(self.node, levels)


def parse_fail_if(text: str) -> FailCondition:
    return FailCondition(text, _Parser(text).parse())


class _Token(NamedTuple):
    kind: str
    text: str
    unit: str
    start: int
    end: int


class _Parser:
    """Recursive descent parser with limited depth."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenize())
        self._at = 0

    def _tokenize(self) -> list[_Token]:
        tokens, position, end = [], 0, len(self._text.rstrip())
        while position < end:
            match = _TOKENS.match(self._text, position)
            if match is None:
                start = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                raise self._error(f"{self._text[start]!r} is not valid here", start)
            kind = next(name for name in ("word", "number", "sign") if match.group(name) is not None)
            unit = match.group("unit") or match.group("odd") or ""
            tokens.append(_Token(kind, match.group(kind), unit, match.start(kind), match.end()))
            position = match.end()
        return tokens

    def parse(self) -> _Node:
        node = self._joined("or", 0)
        if self._at < len(self._tokens):
            raise self._error("expected and, or, or the end", self._tokens[self._at].start)
        return node

    def _joined(self, word: str, depth: int) -> _Node:
        """Return the parts that this word joins; `and` binds them more closely than `or`."""
        parts: list[_Node] = []
        while not parts or self._take(word):
            parts.append(self._joined("and", depth) if word == "or" else self._one(depth))
        return parts[0] if len(parts) == 1 else _Group(word == "or", tuple(parts))

    def _one(self, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            raise self._error("too many brackets")
        if not self._take("("):
            return self._comparison()
        node = self._joined("or", depth + 1)
        if not self._take(")"):
            raise self._error("a closing ) is missing")
        return node

    def _comparison(self) -> _Compare:
        word = self._next("word", "a figure such as ttft_p50 or out_tps_steady")
        quantity = find_quantity(word.text)
        if quantity is None:
            raise self._error(f"unknown figure {word.text}{did_you_mean(word.text)}", word.start)
        at = None
        if self._take("@"):
            level = self._next("number", "a level after @, such as @4")
            if level.unit or not level.text.isdigit():
                raise self._error("a level is a whole number", level.start)
            at = int(level.text)
        sign = self._next("sign", "one of > >= < <= == !=")
        if sign.text not in _COMPARE:
            raise self._error("expected one of > >= < <= == !=", sign.start)
        number = self._next("number", "a number, with its unit if it is a time")
        try:
            limit = parse_amount(number.text, number.unit, quantity.kind, _KEY)
        except BadInput as error:
            raise self._error(error.problem, number.start) from None
        return _Compare(word.text, quantity, at, sign.text, limit, self._text[word.start : number.end].strip())

    def _take(self, text: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at].text.lower() == text
        self._at += found
        return found

    def _next(self, kind: str, expected: str) -> _Token:
        if self._at >= len(self._tokens):
            raise self._error(f"expected {expected}")
        token = self._tokens[self._at]
        if token.kind != kind:
            raise self._error(f"expected {expected}", token.start)
        self._at += 1
        return token

    def _error(self, problem: str, position: int | None = None) -> BadInput:
        """Return an error that names the position in the text, in one line."""
        if position is None:
            position = self._tokens[self._at].start if self._at < len(self._tokens) else len(self._text)
        if not self._text.strip():
            return BadInput("is empty; expected something like ttft_p50>1s", key=_KEY)
        return BadInput(f"{problem} (at character {position + 1} of {self._text!r})", key=_KEY)


def _evaluate(node: _Node, levels: Sequence[Level]) -> LimitResult:
    if isinstance(node, _Compare):
        return _compare(node, levels)
    parts = [_evaluate(part, levels) for part in node.parts]
    deciding = [part for part in parts if part.true is node.decisive]
    missing = [part for part in parts if part.true is None and not part.unsure]
    unsure = [part for part in parts if part.unsure]
    true = node.decisive if deciding else None if missing or unsure else not node.decisive
    return LimitResult(
        true=true,
        unsure=bool(unsure and not deciding and not missing),
        because=tuple(why for part in deciding or missing or unsure or parts for why in part.because),
    )


def _compare(node: _Compare, levels: Sequence[Level]) -> LimitResult:
    """Evaluate at one level, or without @ at all of them: true if it is at one, null if one lacks the figure.

    A figure with an interval is on one side of the limit only if all of the interval is.
    """
    expected = [level for level in levels if node.at is None or level.offered_load == node.at]
    if not expected:
        varied = load_title(levels)
        return LimitResult(true=None, because=(f"{node.text}: no level {varied}={node.at} was measured",))
    hits, values, missing, unsure = [], [], [], []
    for level in expected:
        value = node.quantity.value(level)
        if value is None:
            missing.append(null_reason(node.name, level))
            continue
        ends = node.quantity.interval(level) if node.sign in _ORDER else None
        texts = [format_quantity(number, node.quantity) for number in (value, *(ends or ()))]
        interval = f" (95 % sure: {texts[1]} to {texts[2]})" if ends else ""
        shown = f"{node.text}: {node.name} is {texts[0]}{interval} at {level.name}"
        values.append(shown)
        outcomes = {_COMPARE[node.sign](number, node.limit) for number in ends or (value,)}
        if len(outcomes) > 1:
            unsure.append(shown)
        elif True in outcomes:
            hits.append(shown)
    if hits:
        return LimitResult(true=True, because=tuple(hits))
    if missing:
        return LimitResult(true=None, because=(f"{node.text}: {'; '.join(missing)}",))
    if unsure:
        return LimitResult(true=None, unsure=True, because=tuple(unsure))
    return LimitResult(true=False, because=tuple(values))


def format_quantity(value: float, quantity: Quantity) -> str:
    if quantity.kind == "time":
        return f"{short(value, 4)} s" if value >= 1 else f"{short(1e3 * value, 4)} ms"
    if quantity.kind == "share":
        return short_percent(value)
    return short(value, 4) + (" tok/s" if quantity.kind == "rate" else "")
