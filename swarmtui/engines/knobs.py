"""Knobs: the settings of a server that a tuner may change. Each engine lists its own, as data.

A configuration is the knobs that differ from the command that the user gave. It is read from, and written into, a
command line: a flag that is there is replaced where it is, any other is appended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from swarmtui.model.base import Stored
from swarmtui.model.speed_of_light import Binding
from swarmtui.model.tuning import Flags, Value, is_env_variable

# In this order: what comes first decides what later knobs are worth.
KnobStage = Literal["parallelism", "slots", "cache", "speculation", "power"]
STAGES: tuple[KnobStage, ...] = get_args(KnobStage)
# What the machine or the model must have; `gpus` are two or more.
Requirement = Literal["gpu", "gpus", "moe"]
# Counts of the machine, which bound a knob like the value of another knob does.
GPUS, CORES = "gpus", "cores"

_FLAG = re.compile(r"--?[A-Za-z]")


class Conflict(Stored, frozen=True, kw_only=True):
    """These `values` of a knob do not work while the knob `other` has one of `other_values`."""

    values: tuple[Value, ...]
    other: str
    other_values: tuple[Value, ...]


class Knob(Stored, frozen=True, kw_only=True):
    """One setting: its name as the user types it, and the values that are worth trying, in order.

    A name in capitals is an environment variable. `spellings` are other names of the same flag, `negative` is the flag
    that turns it off. `default` is what the server does without the flag; null if it chooses by itself. `moves` are the
    limits that it changes. `changes_quality`: answers, or the contexts that are accepted, may be others. With
    `takes_memory`, higher values need more of it. A value is at most that of the knobs `at_most`, or the number of
    `gpus` or `cores`. It needs the flags `needs_flags` in the command, and what `needs` says. `scales` are flags that
    grow in proportion, if they are given. `json_key`: the value is a JSON object, and this number in it is changed.
    """

    name: str
    stage: KnobStage
    values: tuple[Value, ...]
    moves: tuple[Binding, ...]
    default: Value | None = None
    spellings: tuple[str, ...] = ()
    negative: str = ""
    changes_quality: bool = False
    takes_memory: bool = False
    at_most: tuple[str, ...] = ()
    needs_flags: tuple[str, ...] = ()
    needs: tuple[Requirement, ...] = ()
    excludes: tuple[Conflict, ...] = ()
    scales: tuple[str, ...] = ()
    json_key: str = ""

    @property
    def ordered(self) -> bool:
        """Whether values are numbers, so that what holds for one also says something about those beyond it."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def is_switch(self) -> bool:
        """Whether it is a flag without a value."""
        return bool(self.values) and all(isinstance(value, bool) for value in self.values)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.spellings)


class CommandFlags(NamedTuple):
    """A command without its leading assignments, and these by name."""

    words: tuple[str, ...]
    env: dict[str, str]


def split_assignments(words: Sequence[str]) -> CommandFlags:
    """Take `NAME=value` in front of a command as environment variables, as a shell does."""
    env: dict[str, str] = {}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals or not is_env_variable(name):
            return CommandFlags(tuple(words[at:]), env)
        env[name] = value
    return CommandFlags((), env)


def read_knobs(words: Sequence[str], knobs: Iterable[Knob]) -> Flags:
    """Return the values that a command gives its knobs; a knob that it does not give is left out."""
    command, found = split_assignments(words), Flags()
    for knob in knobs:
        if is_env_variable(knob.name):
            if knob.name in command.env:
                found[knob.name] = parse_value(command.env[knob.name])
        elif (at := _position(command.words, knob)) is not None:
            found[knob.name] = _given(command.words, at, knob)
    return found


def write_knobs(words: Sequence[str], flags: Flags, knobs: Sequence[Knob]) -> CommandFlags:
    """Return the command with these values instead of its own, and the environment variables to set."""
    rest, env = split_assignments(words)
    changed = list(rest)
    for name, value in scaled_flags(words, flags, knobs).items():
        knob = find_knob(knobs, name) or Knob(name=name, stage="slots", values=(), moves=())
        if is_env_variable(name):
            env.pop(name, None)
            env |= {} if value is False else {name: "1" if value is True else str(value)}
            continue
        if (at := _position(changed, knob)) is None:
            changed += _shown(knob, value)
        else:
            changed[at : _end(changed, at, knob)] = _shown(knob, value, changed[at].partition("=")[0])
    return CommandFlags(tuple(changed), env)


def parse_value(text: str) -> Value:
    """`4`, `0.9` and `true` are numbers and a switch, other texts stay as they are."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d{1,15}\.\d{1,15}", text) else text


def knob_values(knob: Knob, baseline: Flags) -> tuple[Value, ...]:
    """Return the values to try; those of a number in a JSON object are this object with other numbers.

    Without the object there is nothing to change, and the values are what the catalogue lists.
    """
    given = baseline.get(knob.name)
    if not knob.json_key or not isinstance(given, str):
        return knob.values if not knob.json_key else ()
    try:
        document = json.loads(given)
    except ValueError:
        return ()
    if not isinstance(document, dict) or knob.json_key not in document:
        return ()
    return tuple(json.dumps(document | {knob.json_key: value}) for value in knob.values)


def find_knob(knobs: Iterable[Knob], name: str) -> Knob | None:
    return next((knob for knob in knobs if name in knob.names), None)


def scaled_flags(words: Sequence[str], flags: Flags, knobs: Sequence[Knob]) -> Flags:
    """Add the flags that grow with the given ones: a llama.cpp with twice the slots needs twice the context."""
    scaled = dict(flags)
    for name, value in flags.items():
        knob = find_knob(knobs, name)
        for other in knob.scales if knob else ():
            known = find_knob(knobs, other)
            before = read_knobs(words, (known, knob) if known and knob else ())
            total, base = before.get(other), before.get(name, knob.default if knob else None)
            if other in flags or not isinstance(total, int) or not isinstance(base, int) or not isinstance(value, int):
                continue
            if total > 0 and base > 0:
                scaled[other] = max(1, total * value // base)
    return scaled


def _position(words: Sequence[str], knob: Knob) -> int | None:
    """Return where the flag is; the last one counts, as in most programs."""
    names = (*knob.names, *((knob.negative,) if knob.negative else ()))
    dashed = {name.replace("_", "-") for name in names}
    for at in range(len(words) - 1, -1, -1):
        name = words[at].partition("=")[0]
        if name in names or (name.startswith("--") and name.replace("_", "-") in dashed):
            return at
    return None


def _end(words: Sequence[str], at: int, knob: Knob) -> int:
    """Return the position after a flag and its value; a switch has none."""
    single = knob.is_switch or "=" in words[at] or at + 1 == len(words) or _FLAG.match(words[at + 1])
    return at + 1 if single else at + 2


def _given(words: Sequence[str], at: int, knob: Knob) -> Value:
    name, equals, value = words[at].partition("=")
    if knob.negative and name.replace("_", "-") == knob.negative:
        return False
    if equals:
        return parse_value(value)
    return parse_value(words[at + 1]) if _end(words, at, knob) == at + 2 else True


def _shown(knob: Knob, value: Value, spelled: str = "") -> list[str]:
    """Write a flag as it was spelled."""
    if value is False:
        return [knob.negative] if knob.negative else []
    name = spelled if spelled and spelled.replace("_", "-") != knob.negative else knob.name
    return [name] if value is True else [name, str(value)]
