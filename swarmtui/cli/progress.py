"""Show the progress of a run on stderr: one updated line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from swarmtui.analysis.capacity.words import left_text, outlook_texts, step_texts
from swarmtui.model.client_protocol import Frame, WarningCode
from swarmtui.model.plan import LevelKey
from swarmtui.model.session import Level
from swarmtui.numbers import rate, seconds
from swarmtui.text import count_noun, fold, name_errors, sanitize, truncate, write_text

_BAR = 20
_CLEAR_LINE = "\r\x1b[2K"
_HEARTBEAT_S = 10.0
# Parts that a narrow terminal leaves out, the first one first: what is found and the time that is left stay.
_DROP = ("waiting", "ttft", "no errors", "step", "tps")


class Progress:
    """Write messages and show no frames, for --quiet."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._warned: set[WarningCode] = set()

    def show(self, frame: Frame) -> None:
        pass

    def write(self, text: str) -> None:
        write_text(self._out, fold(sanitize(text), self._out))
        self._out.flush()

    def clear(self) -> None:
        pass

    def _write_warnings(self, frame: Frame) -> None:
        """Report each kind of warning once, also if the numbers in its text change."""
        for warning in frame.warnings:
            if warning.code not in self._warned:
                self._warned.add(warning.code)
                self.write(f"warning: {warning.text}")


class TerminalProgress(Progress):
    """Show one line on a terminal, rewritten in place; messages are written above it."""

    _shown = False

    def show(self, frame: Frame) -> None:
        self._write_warnings(frame)
        columns = shutil.get_terminal_size().columns
        line, parts = describe_frame(frame, columns), _ttft_parts(frame)
        if parts and len(line) + len(parts) < columns:
            line += parts
        self._out.write(_CLEAR_LINE)
        write_text(self._out, truncate(sanitize(line), columns - 1), end="")
        self._out.flush()
        self._shown = True

    def write(self, text: str) -> None:
        self.clear()
        super().write(text)

    def clear(self) -> None:
        if self._shown:
            self._out.write(_CLEAR_LINE)
            self._out.flush()
            self._shown = False


class PlainProgress(Progress):
    """Write lines to a pipe or file: when a stage starts or ends, and every ten seconds."""

    _phase: tuple[object, ...] = ()
    # The level and its requests: at the end, levels get other figures than their requests, such as energy.
    _levels: frozenset[tuple[LevelKey, int]] = frozenset()
    _written_at = 0.0

    def show(self, frame: Frame) -> None:
        self._write_warnings(frame)
        for level in frame.levels:
            if (level.key, level.n) not in self._levels:
                self.write(_describe_level(level))
        self._levels = frozenset((level.key, level.n) for level in frame.levels)
        phase = (frame.status, frame.c, frame.run)
        if phase != self._phase or time.monotonic() - self._written_at >= _HEARTBEAT_S:
            self._phase = phase
            if frame.status not in ("ended", "saving"):
                self.write(describe_frame(frame) + _ttft_parts(frame))

    def write(self, text: str) -> None:
        self._written_at = time.monotonic()
        super().write(text)


def open_progress(out: TextIO, quiet: bool) -> Progress:
    if quiet:
        return Progress(out)
    return TerminalProgress(out) if out.isatty() else PlainProgress(out)


def describe_frame(frame: Frame, columns: int | None = None) -> str:
    """C=4 run 1/2 [#####---------------] 12/16 · 312 tok/s · TTFT 180 ms · 0 errors · 0:12 left

    A search adds what it has found, `8 kept · 16 missed`, and what the level is for. In few columns some parts are
    left out.
    """
    if frame.note:
        return f"{_phase(frame)}: {frame.note}"
    parts = {"phase": _phase(frame), "found": _found(frame), "step": _step(frame)}
    if frame.of:
        filled = round(_BAR * min(1.0, frame.done / frame.of))
        parts["phase"] += f" [{'#' * filled}{'-' * (_BAR - filled)}] {frame.done}/{frame.of}"
    elif frame.done:
        parts["phase"] += f" {frame.done} done"
    if frame.out_tps is not None:
        parts["tps"] = f"{rate(frame.out_tps)} tok/s"
    if frame.ttft_s is not None:
        parts["ttft"] = f"first token (10 s) {seconds(frame.ttft_s)}"
    if frame.in_flight:
        parts["waiting"] = f"{frame.waiting} of {frame.in_flight} waiting"
    if frame.errors:
        parts["errors"] = _count_errors(frame.errors, frame.error_counts)
    else:
        parts["no errors"] = "0 errors"
    parts["left"] = left_text(frame)
    for name in _DROP:
        if columns is not None and len(_line(parts)) >= columns:
            parts.pop(name, None)
    return _line(parts)


def _line(parts: dict[str, str]) -> str:
    return " · ".join(part for part in parts.values() if part)


def _found(frame: Frame) -> str:
    """The bracket of a search: `at least 8 · 16 missed`, or `16 missed?` of a level that is not decided."""
    search = frame.search
    if search is None:
        return ""
    unsure = {level.c: "?" for level in search.levels if level.state == "unsure"}
    if search.goal == "capacity":
        low, past = f"at least {search.at_least}" if search.at_least else "", "missed"
    else:
        low, past = f"{search.low} no queue" if search.low else "", "queues"
    missed = f"{search.high} {past}{unsure.get(search.high, '')}" if search.high is not None else ""
    return " · ".join(filter(None, (low, missed)))


def _step(frame: Frame) -> str:
    """Say how the level of a search will end, if that is known, else what it is for."""
    texts = step_texts(frame.search) if frame.search is not None and frame.status == "running" else ()
    outlook = outlook_texts(frame)
    return outlook[0] if outlook else texts[1] if texts else ""


def _ttft_parts(frame: Frame) -> str:
    """The parts of TTFT, of the requests that ended recently; empty if unknown."""
    parts = frame.ttft_split
    if parts is None or frame.status != "running" or frame.note:
        return ""
    known = [f"{name} {seconds(value)}" for name, value in parts.known_parts]
    return f" · first token {'est. ' if parts.estimated else ''}{' + '.join(known)}"


def _phase(frame: Frame) -> str:
    level = f"C={frame.c}" if frame.rate is None else f"{frame.rate:g}/s"
    if frame.status == "running":
        return level + (f" run {frame.run}/{frame.runs}" if frame.runs > 1 else "")
    return f"{frame.status} {level}" if frame.c and frame.status in ("draining", "pausing", "paused") else frame.status


def _count_errors(number: int, kinds: dict[str, int]) -> str:
    return count_noun(number, "error") + (f" ({name_errors(kinds)})" if kinds else "")


def _describe_level(level: Level) -> str:
    parts = [f"{level.name}: {level.ok} ok, {_count_errors(level.errors, level.error_counts)}"]
    approximate = "~" if level.tokens_estimated else ""
    if level.out_tps_steady is not None:
        parts.append(f"{approximate}{rate(level.out_tps_steady, level.half_width)} tok/s steady")
    if level.out_tps_wall is not None:
        parts.append(f"{approximate}{rate(level.out_tps_wall, level.half_width)} wall")
    if level.shown_ttft_s.median is not None:
        parts.append(f"first token {seconds(level.shown_ttft_s.median)}")
    return ", ".join(parts)
