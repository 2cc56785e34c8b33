"""The configurations that a tuner may try: knobs with the values that this machine, model and command allow.

A configuration is named by the flags that differ from the command of the user, which is the empty one. What can be
ruled out without a start is refused with a reason: flags that exclude each other, a model that does not fit into the
memory, a limit of the hardware below what was already measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Literal

import msgspec

from swarmtui.analysis.speed_of_light.limits import level_limit
from swarmtui.analysis.speed_of_light.session import served_as
from swarmtui.analysis.speed_of_light.step import kv_bytes
from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import CORES, GPUS, STAGES, Knob, find_knob, knob_values, read_knobs, scaled_flags
from swarmtui.engines.registry import engine_named, flags_from_command
from swarmtui.model.base import Stored
from swarmtui.model.findings import Slots
from swarmtui.model.speed_of_light import Binding, Serving, SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.tuning import Flags, Value, format_flags
from swarmtui.numbers import short

# Beside the weights and the KV cache a server needs room for what it computes.
_USABLE_MEMORY = 0.97

LeftOutCode = Literal["quality", "needs", "machine", "values"]
RefusalCode = Literal["excluded", "bound", "vetoed", "pinned", "crashed", "no_memory", "below_best"]


class Machine(Stored, frozen=True, kw_only=True):
    """What bounds the values of knobs; null is not known."""

    gpus: int | None = None
    cores: int | None = None


class LeftOut(Stored, frozen=True, kw_only=True):
    """A knob that is not tried, and why."""

    knob: str
    code: LeftOutCode
    reason: str


class Refusal(Stored, frozen=True, kw_only=True):
    """Why a configuration is not started."""

    code: RefusalCode
    reason: str


class Crash(Stored, frozen=True, kw_only=True):
    """A configuration that failed by the change of one knob, and the line of the log that says why.

    Values of this knob at least as far from `before` fail as well: of an ordered knob those beyond `value`, else just
    this one. `unknown_flag`: the server does not know the knob, so that no value works.
    """

    flags: Flags
    knob: str
    before: Value | None
    value: Value
    line: str
    unknown_flag: bool = False


class SearchSpace(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The knobs of a tune, and the values that they have in the command or by default (`baseline`).

    `limits` are those of the first session, from which the others are predicted. `stream_tps` is what each agent needs
    at least, by the SLO.
    """

    engine: str
    words: tuple[str, ...]
    knobs: tuple[Knob, ...]
    baseline: Flags
    machine: Machine = Machine()
    left_out: tuple[LeftOut, ...] = ()
    pins: Flags = {}
    vetoes: tuple[Flags, ...] = ()
    limits: SpeedOfLight | None = None
    server: DiscoveredServer | None = None
    stream_tps: float | None = None

    @cached_property
    def size(self) -> int:
        """How many configurations there are."""
        return prod(len(self.ladder(knob)) for knob in self.knobs)

    def ladder(self, knob: Knob) -> tuple[Value, ...]:
        """Return the values to try and that of the command, in order."""
        known = self.baseline.get(knob.name)
        values = knob_values(knob, self.baseline)
        if known is None or known in values:
            return values
        return tuple(sorted((*values, known), key=_number)) if knob.ordered else (known, *values)

    def in_order(self, knobs: Iterable[Knob]) -> list[Knob]:
        """Order knobs: those first that move what binds the highest level of the command as it is, then by stage."""
        found = [level.binds for level in self.limits.levels] if self.limits else []
        known = [{binds} - {"not_known"} for binds in found]
        highest, all_levels = known[-1] if known else set(), set[Binding]().union(*known)
        return sorted(
            knobs,
            key=lambda knob: (
                highest.isdisjoint(knob.moves), STAGES.index(knob.stage), all_levels.isdisjoint(knob.moves)
            ),
        )  # fmt: skip

    def value(self, flags: Flags, name: str) -> Value | None:
        return flags.get(name, self.baseline.get(name))

    def changed(self, flags: Flags, name: str, value: Value) -> Flags:
        """Return the configuration with another value of one knob."""
        other = {key: kept for key, kept in flags.items() if key != name}
        return other if self.baseline.get(name) == value else other | {name: value}

    def normalised(self, flags: Flags) -> Flags:
        """Return what differs from the command."""
        return {name: value for name, value in flags.items() if self.baseline.get(name) != value}

    def pinned(self, flags: Flags) -> Flags:
        """Return the configuration with the values that the user fixed."""
        for name, value in self.pins.items():
            flags = self.changed(flags, name, value)
        return flags

    def refuse(self, flags: Flags, crashes: Sequence[Crash] = (), best: float | None = None) -> Refusal | None:
        """Return why a configuration need not be started; `best` is the tok/s that it would have to exceed."""
        for name, value in self.pins.items():
            if self.value(flags, name) != value:
                return Refusal(code="pinned", reason=f"{name} is pinned to {value}")
        for veto in self.vetoes:
            if veto == flags if not veto else all(self.value(flags, name) == value for name, value in veto.items()):
                return Refusal(code="vetoed", reason=f"{format_flags(veto)} was vetoed")
        return self._excluded(flags) or self._crashed(flags, crashes) or self._impossible(flags, best)

    def _excluded(self, flags: Flags) -> Refusal | None:
        used = 1
        for knob in self.knobs:
            value = self.value(flags, knob.name)
            if value is None:
                continue
            for conflict in knob.excludes:
                other = self.value(flags, conflict.other)
                if value in conflict.values and other in conflict.other_values:
                    reason = f"{knob.name} {value} does not work with {conflict.other} {other}"
                    return Refusal(code="excluded", reason=reason)
            for name in knob.at_most:
                most = self._bound(flags, name)
                used *= int(_number(value)) if name == GPUS else 1
                if most is not None and (_number(value) > most or (name == GPUS and used > most)):
                    return Refusal(code="bound", reason=f"{knob.name} {value} is more than {name}, {most:g}")
        return None

    def _bound(self, flags: Flags, name: str) -> float | None:
        if name in (GPUS, CORES):
            return self.machine.gpus if name == GPUS else self.machine.cores
        known = self.value(flags, name)
        return None if known is None else _number(known)

    def _crashed(self, flags: Flags, crashes: Sequence[Crash]) -> Refusal | None:
        for crash in crashes:
            value = self.value(flags, crash.knob)
            known = find_knob(self.knobs, crash.knob)
            if value is None or known is None or crash.knob not in flags:
                continue
            beyond = value == crash.value
            if known.ordered and crash.before is not None:
                sign = 1 if _number(crash.value) > _number(crash.before) else -1
                beyond = sign * _number(value) >= sign * _number(crash.value)
            # Another knob that needs memory and is lower now may leave enough of it.
            if crash.unknown_flag or (beyond and not self._lower_elsewhere(flags, crash)):
                return Refusal(code="crashed", reason=f"{crash.knob} {crash.value} failed: {crash.line}")
        return None

    def _lower_elsewhere(self, flags: Flags, crash: Crash) -> bool:
        others = (knob.name for knob in self.knobs if knob.takes_memory and knob.name != crash.knob)
        pairs = ((self.value(flags, name), self.value(crash.flags, name)) for name in others)
        return any(a is not None and b is not None and _number(a) < _number(b) for a, b in pairs)

    # what the hardware allows

    def serving(self, flags: Flags) -> tuple[Serving, dict[str, str]] | None:
        """Return how the server would serve with these flags, and all its flags by long name."""
        if self.limits is None:
            return None
        engine, before = engine_named(self.engine), dict((self.server.flags if self.server else None) or {})
        all_flags = scaled_flags(self.words, flags, (*self.knobs, *engine.knobs))
        named = {name.lstrip("-"): str(value) for name, value in (self.baseline | all_flags).items()}
        merged = before | named
        slots = engine.slots(merged)
        found = served_as(DiscoveredServer(url="", flags=merged), Slots(per_replica=slots) if slots else None)
        context = self.limits.serving.context or (self.limits.levels[-1].context if self.limits.levels else 0.0)
        return msgspec.structs.replace(found, context=context), merged

    def ceiling(self, flags: Flags) -> float | None:
        """Predict the most tok/s that the hardware allows with these flags; null if that is not known."""
        served, known = self.serving(flags), self.limits
        if served is None or known is None or known.model is None or known.gpu is None:
            return None
        serving = served[0]
        highest = serving.slots or max((level.c for level in known.levels), default=0)
        return level_limit(known.model, known.gpu, serving, highest).limit_tps if highest else None

    def _impossible(self, flags: Flags, best: float | None) -> Refusal | None:
        if not flags:
            return None
        need, room = self._memory(flags)
        if need is not None and room is not None and need > room:
            reason = f"cannot fit: needs {short(need / 1e9)} GB of {short(room / 1e9)} GB"
            return Refusal(code="no_memory", reason=reason)
        ceiling = self.ceiling(flags) if best is not None else None
        if ceiling is not None and best is not None and ceiling < best:
            return Refusal(code="below_best", reason=f"limit {short(ceiling)} tok/s, below the {short(best)} so far")
        return None

    def _memory(self, flags: Flags) -> tuple[float | None, float | None]:
        """Return the bytes that weights and a KV cache of fixed size need on each GPU, and what it has for them."""
        served, known = self.serving(flags), self.limits
        if served is None or known is None or known.model is None or known.gpu is None or known.gpu.memory is None:
            return None, None
        serving, named = served
        # Weights that stay in the memory of the host are not counted.
        if any(named.get(name, "0") != "0" for name in ("n-cpu-moe", "cpu-offload-gb", "n-gpu-layers")):
            return None, None
        need = known.model.total_bytes / max(1, serving.tensor_parallel)
        if (context := named.get("ctx-size", "")).isdigit():
            need += kv_bytes(known.model, serving, 1.0) * int(context)
        share = named.get("gpu-memory-utilization") or named.get("mem-fraction-static") or ""
        return need, known.gpu.memory * (float(share) if _is_share(share) else _USABLE_MEMORY)


def make_space(
    engine: Engine,
    words: Sequence[str],
    *,
    machine: Machine,
    grid: dict[str, tuple[Value, ...]] | None = None,
    allow_quality: bool = False,
    moe: bool | None = None,
    more: Iterable[Knob] = (),
) -> SearchSpace:
    """Choose the knobs to try with this command: those of `grid` with its values, else the catalogue's that apply."""
    more = tuple(more)
    catalogue = (*engine.knobs, *more)
    knobs, left_out = [], []
    if grid:
        for name, values in grid.items():
            known = find_knob(catalogue, name) or Knob(name=name, stage="slots", values=values, moves=("not_known",))
            knobs.append(msgspec.structs.replace(known, values=values))
    else:
        for knob in (_bounded(knob, machine) for knob in engine.knobs):
            why = _inapplicable(knob, words, machine, allow_quality=allow_quality, moe=moe)
            if why is None:
                knobs.append(knob)
            else:
                left_out.append(why)
    knobs += more
    given = read_knobs(words, catalogue)
    defaults = {knob.name: knob.default for knob in (*catalogue, *knobs) if knob.default is not None}
    ordered = sorted(knobs, key=lambda knob: STAGES.index(knob.stage))
    return SearchSpace(
        engine=engine.name, words=tuple(words), knobs=tuple(ordered), baseline=defaults | given, machine=machine,
        left_out=tuple(left_out),
    )  # fmt: skip


def _inapplicable(
    knob: Knob, words: Sequence[str], machine: Machine, *, allow_quality: bool, moe: bool | None
) -> LeftOut | None:
    missing = [name for name in knob.needs_flags if name.lstrip("-") not in flags_from_command(words)]
    reasons: tuple[tuple[object, LeftOutCode, str], ...] = (
        (knob.changes_quality and not allow_quality, "quality", "may change answers; --allow-quality tries it"),
        (missing, "needs", f"needs {' and '.join(missing)} in the command"),
        ("gpu" in knob.needs and not machine.gpus, "machine", "needs a GPU, and none was found"),
        ("gpus" in knob.needs and (machine.gpus or 0) < 2, "machine", "needs two or more GPUs"),
        ("moe" in knob.needs and not moe, "machine", "needs a model with experts"),
        (len(knob.values) < 2, "values", "no other value is possible on this machine"),
    )
    return next((LeftOut(knob=knob.name, code=code, reason=why) for applies, code, why in reasons if applies), None)


def _bounded(knob: Knob, machine: Machine) -> Knob:
    most = [count for name, count in ((GPUS, machine.gpus), (CORES, machine.cores)) if name in knob.at_most and count]
    values = tuple(value for value in knob.values if all(_number(value) <= count for count in most))
    return msgspec.structs.replace(knob, values=values)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _is_share(text: str) -> bool:
    try:
        return 0.0 < float(text) <= 1.0
    except ValueError:
        return False
