"""The grid of a tune as it fills up: its cells, its leaderboard, its fronts and what each flag did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from swarmtui.analysis.compare.verdicts import ENOUGH, verdict
from swarmtui.experiments.effects import Effect, Result, latest, result
from swarmtui.experiments.grid import key_of, rounds_of
from swarmtui.experiments.tune_status import Cell, Standing, cells_now
from swarmtui.model.client_protocol import Frame
from swarmtui.model.tuning import CellRow, flags_text
from swarmtui.text import plain, signed
from swarmtui.tui.lines import Line, left, right, wrapped
from swarmtui.tui.live.header_view import HeadView, Mood, phase
from swarmtui.tui.numbers import NOTHING, clock, rate, seconds

_SIGNS = {
    "waiting": "·", "starting": "◌", "warming up": "◐", "running": "▶", "stopping": "◑", "done": "●", "broken": "✖",
}  # fmt: skip
_MOODS = {"waiting": "dim", "done": "good", "broken": "bad"}
_STATE = 14
_LEAST_FLAGS = 18
_TITLES = ("tok/s", "C", "TTFT", "J/token", "W", "GPU GB", "start", "err")
_WIDTHS = (8, 5, 9, 9, 7, 8, 8, 5)


class CellLine(NamedTuple):
    """`key` names the cell; `text` is for one that has no figures, because it broke."""

    key: str
    mood: str
    state: str
    flags: str
    figures: tuple[str, ...]
    text: str = ""


class TuneView(NamedTuple):
    head: HeadView
    cells: tuple[CellLine, ...]
    board: tuple[CellLine, ...]
    found: tuple[Line, ...]
    beside: str


def tune_view(standing: Standing, frame: Frame | None, now: float, best_first: bool) -> TuneView:
    """`frame` is the newest of the present cell's run; `now` is the wall clock."""
    cells = cells_now(standing)
    found = result(standing.rows, standing.tune.objective)
    ranks = {key_of(row.flags): place for place, row in enumerate(found.leaderboard)}
    shown = sorted(cells, key=lambda cell: ranks.get(key_of(cell.flags), len(cells))) if best_first else cells
    simulated = any(row.simulated for row in standing.rows)
    return TuneView(
        head=_head(standing, cells, found, frame, now),
        cells=tuple(_cell_line(cell, found, frame if cell.is_on else None) for cell in shown),
        board=tuple(_board_lines(found)),
        found=tuple(_found_lines(found)),
        beside=" · ".join(
            part
            for part in (
                "best first" if best_first else "as in the file",
                "▸ best ◆ on a front" if found.leaderboard else "",
                "GPU SIMULATED" if simulated else "",
            )
            if part
        ),
    )


def cell_columns(lines: Sequence[CellLine], width: int) -> tuple[int, int]:
    """So many columns of figures fit, and the flags have so much room beside them: what they need, up to the half."""
    needed = min(max([_LEAST_FLAGS, *(cell_len(line.flags) for line in lines)]), width // 2)
    room, count = width - _STATE - 4, 0
    for column in _WIDTHS:
        if room - column < needed:
            break
        room, count = room - column, count + 1
    return count, max(_LEAST_FLAGS, room)


def titles(columns: tuple[int, int], first: str) -> str:
    """`first` is what the first column tells: the state of a cell, or its place."""
    count, flags = columns
    figures = "".join(right(name, column) for name, column in list(zip(_TITLES, _WIDTHS, strict=True))[:count])
    return f"   {left(first, _STATE)}{left('flags', flags)}{figures}"


def drawn(line: CellLine, columns: tuple[int, int], here: bool) -> Line:
    count, flags = columns
    figures = "".join(right(text, column) for text, column in list(zip(line.figures, _WIDTHS, strict=True))[:count])
    strong = "bold" if here else ""
    return [
        ("› " if here else "  ", "cursor"),
        (left(line.state, _STATE) + " ", line.mood),
        (left(line.flags, flags), strong or ("dim" if line.mood == "dim" else "")),
        ("  " if line.text else "", ""),
        (line.text or figures, "bad" if line.text else strong),
    ]


def _head(standing: Standing, cells: Sequence[Cell], found: Result, frame: Frame | None, now: float) -> HeadView:
    tune, present = standing.tune, standing.present
    this = [cell for cell in cells if cell.round == max(cell.round for cell in cells)] if cells else []
    done = sum(cell.state in ("done", "broken") for cell in this)
    broken = sum(cell.state == "broken" for cell in cells)
    rounds = rounds_of(tune)
    turn = f"round {this[0].round + 1} of {len(rounds)}, " if len(rounds) > 1 and this else ""
    notice, mood = _notice(standing, found, frame, now)
    words = f"{turn}{done} of {len(this)} cells" + (f", {broken} BROKEN" if broken else "")
    return HeadView(
        title=(plain(f"tune {tune.name} · {tune.command}"),),
        phase="tuning" if standing.alive else (present.ended if present else "") or "interrupted",
        progress=words,
        share=done / len(this) if this else None,
        clock=f"{clock(now - present.begun)} elapsed" if present and standing.alive else "",
        trust="",
        trust_mood="",
        notice=notice,
        notice_mood=mood,
    )


def _notice(standing: Standing, found: Result, frame: Frame | None, now: float) -> tuple[str, Mood]:
    present = standing.present
    if standing.alive and present is not None:
        if present.flags is None:
            return "the next cell is being chosen", ""
        since = clock(max(0.0, now - present.since))
        flags = plain(flags_text(present.flags))
        if present.phase == "starting":
            return f"{flags}: the server starts, {since}; enter shows its log", ""
        if present.phase == "stopping":
            return f"{flags}: the server is being stopped, {since}", ""
        at = f", {phase(frame)} {frame.done}/{frame.of}" if frame and frame.of else ""
        return f"{flags}: {present.phase}{at}, {since}; enter shows it", ""
    best = next((row for row in found.leaderboard if row.state == "done"), None)
    led = f"; best: {plain(flags_text(best.flags))}, {rate(best.out_tps)} tok/s at C={best.c}" if best else ""
    ended = present.ended if present else ""
    if ended == "done":
        return f"all cells are done{led}", "good"
    if ended == "stopped":
        return f"stopped; the same command goes on from here{led}", "warn"
    if ended == "failed":
        return f"failed; tune.log says why, the same command goes on from here{led}", "bad"
    return f"interrupted, nobody is at it; the same command goes on from here{led}", "bad"


def _cell_line(cell: Cell, found: Result, frame: Frame | None) -> CellLine:
    row = cell.row
    broken = cell.state == "broken" and row is not None
    return CellLine(
        key=key_of(cell.flags),
        mood=_MOODS.get(cell.state, "first"),
        state=f"{_SIGNS[cell.state]} {'BROKEN' if cell.state == 'broken' else cell.state}",
        flags=plain(flags_text(cell.flags)) + _marks(cell, found),
        figures=_live(frame) if frame else _figures(row),
        text=plain(row.reason) if broken and row else "",
    )


def _marks(cell: Cell, found: Result) -> str:
    row = cell.row
    if row is None or row.state != "done" or cell.state != "done":
        return ""
    best = " ▸" if found.leaderboard[0] == row else ""
    return best + (" ◆" if row in found.front_ttft or row in found.front_energy else "")


def _figures(row: CellRow | None) -> tuple[str, ...]:
    if row is None or row.state == "broken":
        return ("",) * len(_TITLES)
    return (
        rate(row.out_tps),
        NOTHING if row.c is None else str(row.c),
        seconds(row.ttft_s),
        rate(row.j_per_token),
        rate(row.mean_w),
        rate(None if row.peak_memory is None else row.peak_memory / 1e9),
        seconds(row.start_s),
        NOTHING if row.errors is None else str(row.errors),
    )


def _live(frame: Frame) -> tuple[str, ...]:
    gpus = frame.telemetry.gpus if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    per_token = sum(watts) / frame.out_tps if watts and frame.out_tps else None
    return (
        rate(frame.out_tps),
        str(frame.c),
        seconds(frame.ttft_s),
        rate(per_token),
        rate(sum(watts) if watts else None),
        rate(sum(used) / 1e9 if used else None),
        "",
        str(frame.errors),
    )


def _board_lines(found: Result) -> list[CellLine]:
    """Best first, with the verdict against the best where there are runs enough for one."""
    best = next((row for row in found.leaderboard if row.state == "done"), None)
    lines = []
    for place, row in enumerate(found.leaderboard, start=1):
        done = row.state == "done"
        lines.append(
            CellLine(
                key=key_of(row.flags),
                mood="good" if row is best else "dim" if done else "bad",
                state=f"{'▸' if row is best else place} {_beside(best, row) if done else 'BROKEN'}",
                flags=plain(flags_text(row.flags)),
                figures=_figures(row),
                text="" if done else plain(row.reason),
            )
        )
    return lines


def _beside(best: CellRow | None, row: CellRow) -> str:
    if best is None or row is best or row.round != best.round or min(len(best.runs), len(row.runs)) < ENOUGH:
        return ""
    return verdict(best.runs, row.runs).word


def _found_lines(found: Result) -> list[Line]:
    """Unwrapped: `fitted_lines` breaks them for the room there is."""
    lines: list[Line] = []
    for name, front, figure in (("TTFT", found.front_ttft, "ttft_s"), ("J/token", found.front_energy, "j_per_token")):
        if front:
            lines.append([(f"front: tok/s against {name}", "title")])
        for row in front:
            value = getattr(row, figure)
            cost = seconds(value) if figure == "ttft_s" else f"{rate(value)} J"
            mark = " SIMULATED" if figure == "j_per_token" and row.simulated else ""
            lines.append([(f"{rate(row.out_tps)} tok/s, {cost}{mark}  ", "bold"), (plain(flags_text(row.flags)), "")])
    known = [effect for effect in found.effects if effect.pairs]
    if known:
        lines.append([("what each flag did, all else equal", "title")])
    return [*lines, *map(_effect_line, known)]


def _effect_line(effect: Effect) -> Line:
    spread = f", {_signed(effect.low)} to {_signed(effect.high)}" if effect.pairs > 1 else ""
    pairs = f"{effect.pairs} pair{'s' if effect.pairs > 1 else ''}"
    return [
        (f"{_signed(effect.change)}  ", "bold"),
        (plain(f"{effect.flag} {effect.base} → {effect.value}"), ""),
        (f"  ({pairs}{spread})", "dim"),
    ]


def fitted_lines(lines: Sequence[Line], width: int) -> list[Line]:
    """Lines too wide for the room lose their styles, not their words."""
    made: list[Line] = []
    for line in lines:
        text = "".join(part for part, _ in line)
        if len(text) <= width - 1:
            made.append([(" ", ""), *line])
        else:
            made += [[(f" {part}", line[0][1] if not place else "")] for place, part in enumerate(wrapped(text, width))]
    return made


def last_row(standing: Standing, key: str) -> CellRow | None:
    return next((row for row in latest(standing.rows) if key_of(row.flags) == key), None)


def broken_lines(row: CellRow, width: int) -> list[Line]:
    """Why it broke, and what its server wrote last."""
    lines: list[Line] = [[(f" {part}", "bad")] for part in wrapped(plain(row.reason), max(8, width - 2))]
    return [*lines, [], *log_lines(row.log, width)]


def log_lines(log: Sequence[str], width: int) -> list[Line]:
    if not log:
        return [[(" the server has written nothing yet", "dim")]]
    return [[(f" {part}", "")] for text in log for part in wrapped(plain(text), max(8, width - 2))]


def _signed(share: float | None) -> str:
    return NOTHING if share is None else signed(share)
