"""What a tune, an A/B comparison and the log of changes came to, as plain text that is also Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.verdicts import ENOUGH, verdict
from swarmtui.cli.render.table import BEST, aligned, narrowed, wrapped
from swarmtui.experiments.advice import Advice
from swarmtui.experiments.effects import Result
from swarmtui.model.tuning import CellRow, Change, Objective, flags_text
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.text import plain, signed

_MORE = f"With runs = {ENOUGH} in [plan] each is held against the best; `swarmtui ab` decides between two."
_NAMES: dict[Objective, str] = {"out_tps": "output tok/s", "ttft_s": "TTFT", "j_per_token": "J a token"}


def row_line(row: CellRow) -> str:
    """`--parallel 4: 123.4 tok/s at C=4, TTFT 0.210 s, ready after 1.2 s`"""
    if row.state == "broken":
        return f"{flags_text(row.flags)}: BROKEN: {row.reason}"
    parts = [f"{amount(row.out_tps)} tok/s at C={row.c}", f"TTFT {amount(row.ttft_s, 3)} s"]
    if row.start_s is not None:
        parts.append(f"ready after {amount(row.start_s, 2)} s")
    if row.errors:
        parts.append(f"{row.errors} errors")
    return f"{flags_text(row.flags)}: {', '.join(parts)}"


def tune_text(found: Result) -> str:
    if not found.leaderboard:
        return "no cell is finished yet\n"
    parts = [_leaderboard(found.leaderboard), _fronts(found), _effects(found), _broken(found.leaderboard)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _leaderboard(rows: Sequence[CellRow]) -> list[str]:
    best = next((row for row in rows if row.state == "done"), None)
    titles = ["", "flags", "tok/s", "C", "TTFT s", f"to {BEST}", "J/token", "W", "GPU GB", "start s", "err"]
    cells = [
        [
            BEST if place == 1 and row.state == "done" else str(place),
            plain(flags_text(row.flags)),
            "BROKEN" if row.state == "broken" else amount(row.out_tps),
            NOTHING if row.c is None else str(row.c),
            amount(row.ttft_s, 3),
            _beside(best, row),
            amount(row.j_per_token, 3),
            amount(row.mean_w, 3),
            amount(None if row.peak_memory is None else row.peak_memory / 1e9, 3),
            amount(row.start_s, 2),
            NOTHING if row.errors is None else str(row.errors),
        ]
        for place, row in enumerate(rows, start=1)
    ]
    used = [k for k in range(len(titles)) if k < 5 or any(row[k] != NOTHING for row in cells)]
    titles, cells = [titles[k] for k in used], [[row[k] for k in used] for row in cells]
    right = [True, False, *[True] * (len(titles) - 2)]
    table = aligned(titles, narrowed(titles, cells, {1: 20}), right=right)
    if any(row.simulated for row in rows):
        table += ["", "J/token, W and GPU GB are of a SIMULATED GPU."]
    if best is not None and len(best.runs) < ENOUGH:
        table += [
            "",
            *wrapped(
                f"{len(best.runs)} run{'' if len(best.runs) == 1 else 's'} a cell: the order is no verdict. {_MORE}"
            ),
        ]
    return table


def _beside(best: CellRow | None, row: CellRow) -> str:
    """In tok/s, from the runs of both; nothing where they are too few to tell."""
    if best is None or row is best or row.round != best.round or min(len(best.runs), len(row.runs)) < ENOUGH:
        return NOTHING
    return verdict(best.runs, row.runs).word


def _fronts(found: Result) -> list[str]:
    said = []
    for name, front, figure in (("s TTFT", found.front_ttft, "ttft_s"), ("J/token", found.front_energy, "j_per_token")):
        if front:
            simulated = figure == "j_per_token" and any(row.simulated for row in front)
            mark = " (SIMULATED)" if simulated else ""
            points = "; ".join(
                f"{flags_text(row.flags)} ({amount(row.out_tps)} tok/s, {amount(getattr(row, figure), 3)} {name})"
                for row in front
            )
            said += wrapped(plain(f"Pareto front, tok/s against {name}{mark}: {points}"))
    return said


def _effects(found: Result) -> list[str]:
    known = [effect for effect in found.effects if effect.pairs]
    if not known:
        return []
    cells = [
        [
            plain(effect.flag),
            f"{effect.base} → {effect.value}",
            _signed(effect.change),
            f"{_signed(effect.low)} … {_signed(effect.high)}" if effect.pairs > 1 else NOTHING,
            str(effect.pairs),
        ]
        for effect in known
    ]
    titles = ["flag", "change", _NAMES[found.objective], "in pairs from … to", "pairs"]
    return aligned(titles, narrowed(titles, cells, {0: 10, 1: 10}), right=[False, False, True, True, True])


def _broken(rows: Sequence[CellRow]) -> list[str]:
    said = []
    for row in rows:
        if row.state == "broken":
            said += wrapped(plain(row_line(row)))
            said += [f"    {plain(line)[:96]}" for line in row.log]
    return said


def log_text(changes: Sequence[Change]) -> str:
    if not changes:
        return "no changes yet: `swarmtui run --baseline last` and `swarmtui ab` write them\n"
    titles = ["#", "when", "changed", "gave", "verdict", "kept?", "note"]
    rows = [
        [
            str(change.number),
            change.created[:16],
            plain(change.what),
            NOTHING if change.change is None else signed(change.change),
            change.verdict,
            change.kept,
            plain(change.note),
        ]
        for change in changes
    ]
    table = aligned(titles, narrowed(titles, rows, {2: 20, 6: 10}), right=[True, False, False, True, *[False] * 3])
    return "\n".join(table) + "\n"


def advice_text(found: Sequence[Advice]) -> str:
    if not found:
        return "nothing in the figures of this session asks for a change\n"
    return "".join(
        f"{line}\n"
        for one in found
        for line in (*wrapped(plain(f"{one.topic}: {one.sentence}")), *wrapped(f"    {plain(one.evidence)}"))
    )


def _signed(share: float | None) -> str:
    return NOTHING if share is None else signed(share)
