"""How far it is, on stderr: one line that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import shutil
import time
from typing import Protocol, TextIO

from swarmtui.model.client_protocol import Frame
from swarmtui.model.session import Level
from swarmtui.text import fit, plain

_BAR = 20
_PLAIN_EVERY_S = 10.0


class Progress(Protocol):
    def show(self, frame: Frame) -> None: ...
    def say(self, text: str) -> None: ...
    def clear(self) -> None: ...


class Silent:
    """--quiet: only what must be said."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, frame: Frame) -> None:
        pass

    def say(self, text: str) -> None:
        self._out.write(f"{plain(text)}\n")

    def clear(self) -> None:
        pass


class Line:
    """On a terminal: one line, rewritten in place; what is said goes above it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = False
        self._warned: set[str] = set()

    def show(self, frame: Frame) -> None:
        for warning in _new_warnings(frame, self._warned):
            self.say(f"warning: {warning}")
        columns = shutil.get_terminal_size().columns
        line, split = describe(frame), _split(frame)
        if split and len(line) + len(split) < columns:
            line += split
        self._out.write("\r\x1b[2K" + fit(line, columns - 1))
        self._out.flush()
        self._shown = True

    def say(self, text: str) -> None:
        self.clear()
        self._out.write(f"{plain(text)}\n")
        self._out.flush()

    def clear(self) -> None:
        if self._shown:
            self._out.write("\r\x1b[2K")
            self._out.flush()
            self._shown = False


class Lines:
    """Elsewhere: a line when something begins or ends, and a sign of life now and then."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._phase: tuple[object, ...] = ()
        self._levels: tuple[Level, ...] = ()
        self._said = 0.0
        self._warned: set[str] = set()

    def show(self, frame: Frame) -> None:
        for warning in _new_warnings(frame, self._warned):
            self.say(f"warning: {warning}")
        for level in frame.levels:
            if level not in self._levels:
                self.say(_result(level))
        self._levels = frame.levels
        phase = (frame.status, frame.c, frame.run)
        if phase != self._phase or time.monotonic() - self._said >= _PLAIN_EVERY_S:
            self._phase = phase
            if frame.status not in ("ended", "saving"):
                self.say(describe(frame) + _split(frame))

    def say(self, text: str) -> None:
        self._said = time.monotonic()
        self._out.write(f"{plain(text)}\n")
        self._out.flush()

    def clear(self) -> None:
        pass


def _new_warnings(frame: Frame, known: set[str]) -> list[str]:
    """Each kind once: a warning whose numbers grow is not a new one."""
    new = {re.sub(r"\d+", "", warning): warning for warning in frame.warnings}
    fresh = [warning for kind, warning in new.items() if kind not in known]
    known.update(new)
    return fresh


def progress_on(out: TextIO, quiet: bool) -> Progress:
    if quiet:
        return Silent(out)
    return Line(out) if out.isatty() else Lines(out)


def describe(frame: Frame) -> str:
    """C=4 run 1/2 [#####---------------] 12/16 · 312 tok/s · TTFT 180 ms · 0 errors · 0:12 left"""
    if frame.note:
        return f"{_phase(frame)}: {frame.note}"
    parts = [_phase(frame)]
    if frame.of:
        filled = round(_BAR * min(1.0, frame.done / frame.of))
        parts[0] += f" [{'#' * filled}{'-' * (_BAR - filled)}] {frame.done}/{frame.of}"
    elif frame.done:
        parts[0] += f" {frame.done} done"
    if frame.out_tps is not None:
        parts.append(f"{frame.out_tps:.0f} tok/s")
    if frame.ttft_s is not None:
        parts.append(f"TTFT {milliseconds(frame.ttft_s)}")
    if frame.in_flight:
        parts.append(f"{frame.waiting} of {frame.in_flight} waiting")
    if frame.errors:
        worst = max(frame.error_counts, key=lambda name: frame.error_counts[name])
        parts.append(f"{frame.errors} error{'s' if frame.errors > 1 else ''} ({worst})")
    else:
        parts.append("0 errors")
    if frame.left_s is not None and frame.status != "stopping":  # what is left of the plan is not waited for
        parts.append(f"{clock(frame.left_s)} left")
    return " · ".join(parts)


def _split(frame: Frame) -> str:
    """Where the time to the first token goes, of requests that ended lately; empty where nobody knows."""
    parts = frame.ttft_split
    if parts is None or frame.status != "running" or frame.note:
        return ""
    named = (("queue", parts.queue_s), ("prefill", parts.prefill_s), ("rest", parts.rest_s))
    known = [f"{name} {milliseconds(value)}" for name, value in named if value is not None]
    return f" · TTFT {'est. ' if parts.estimated else ''}{' + '.join(known)}"


def _phase(frame: Frame) -> str:
    level = f"C={frame.c}" if frame.rate is None else f"{frame.rate:g}/s"
    if frame.status == "running":
        return level + (f" run {frame.run}/{frame.runs}" if frame.runs > 1 else "")
    return f"{frame.status} {level}" if frame.c and frame.status in ("draining", "paused") else frame.status


def _result(level: Level) -> str:
    parts = [f"{level.name}: {level.ok} ok, {level.errors} errors"]
    guess = "~" if level.token_source in ("chunks", "mixed") else ""
    if level.out_tps_steady is not None:
        parts.append(f"{guess}{level.out_tps_steady:.1f} tok/s steady")
    if level.out_tps_wall is not None:
        parts.append(f"{guess}{level.out_tps_wall:.1f} wall")
    if level.ttft_s.mean is not None:
        parts.append(f"TTFT {milliseconds(level.ttft_s.p50 or level.ttft_s.mean)}")
    return ", ".join(parts)


def milliseconds(seconds: float) -> str:
    """Never 0 for a time that was measured."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1e3:.2g} ms"


def clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
