"""The view of a tune: header, configurations, leaderboard, Pareto fronts and the effect of each flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.experiments.effects import Effect, TuneSummary, ranking_sentence, summarise_rows
from swarmtui.experiments.grid import (
    ConfigurationStatus,
    configuration_key,
    configuration_statuses,
    halving_rounds,
    latest,
)
from swarmtui.model.client_protocol import Frame
from swarmtui.model.tuning import Start, Tune, format_flags
from swarmtui.numbers import MISSING, clock, gib, rate, seconds, signed_percent
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.lines import Line, ljust, rjust, wrap
from swarmtui.tui.live.header import HeaderView, StatusStyle, phase

_SIGNS = {
    "waiting": "·", "starting": "◌", "warming up": "◐", "running": "▶", "stopping": "◑", "done": "●", "broken": "✖",
}  # fmt: skip
_STYLES = {"waiting": "dim", "done": "good", "broken": "bad"}
_STATE = 14
_MIN_FLAGS = 18
_TITLES = ("tok/s", "C", "TTFT", "J/token", "GPU W", "GPU GiB", "start", "err")
_WIDTHS = (8, 5, 9, 9, 7, 8, 8, 5)


class ConfigurationLine(NamedTuple):
    """`key` identifies the configuration; `error` replaces the figures of one that failed."""

    key: str
    style: str
    state: str
    flags: str
    figures: tuple[str, ...]
    error: str = ""


class TuneView(NamedTuple):
    header: HeaderView
    configurations: tuple[ConfigurationLine, ...]
    leaderboard: tuple[ConfigurationLine, ...]
    findings: tuple[Line, ...]
    note: str


def tune_view(tune: Tune, frame: Frame | None, now: float, best_first: bool) -> TuneView:
    """`frame` is the newest of the current configuration's run; `now` is the wall clock."""
    statuses = configuration_statuses(tune)
    summary = summarise_rows(tune.starts, tune.definition.objective)
    ranks = {configuration_key(row.flags): rank for rank, row in enumerate(summary.leaderboard)}
    shown = statuses
    if best_first:
        shown = sorted(statuses, key=lambda status: ranks.get(configuration_key(status.flags), len(statuses)))
    simulated = any(row.simulated for row in tune.starts)
    return TuneView(
        header=_header(tune, statuses, summary, frame, now),
        configurations=tuple(
            _configuration_line(status, summary, frame if status.is_active else None) for status in shown
        ),
        leaderboard=tuple(_leaderboard_lines(summary)),
        findings=tuple(_finding_lines(summary)),
        note=" · ".join(
            part
            for part in (
                "best first" if best_first else "file order",
                "▸ best ◆ on a Pareto front" if summary.leaderboard else "",
                "GPU SIMULATED" if simulated else "",
                "W, GiB: sums over GPUs" if any(row.mean_w is not None for row in tune.starts) else "",
            )
            if part
        ),
    )


def latest_row(tune: Tune, key: str) -> Start | None:
    return next((row for row in latest(tune.starts) if configuration_key(row.flags) == key), None)


# header


def _header(
    tune: Tune,
    statuses: Sequence[ConfigurationStatus],
    summary: TuneSummary,
    frame: Frame | None,
    now: float,
) -> HeaderView:
    definition, status = tune.definition, tune.status
    newest = max((each.round for each in statuses), default=0)
    in_round = [each for each in statuses if each.round == newest]
    done = sum(each.state in ("done", "broken") for each in in_round)
    failed = sum(each.state == "broken" for each in statuses)
    rounds = halving_rounds(definition)
    round_text = f"round {newest + 1} of {len(rounds)}, " if len(rounds) > 1 and in_round else ""
    notice, style = _notice(tune, summary, frame, now)
    return HeaderView(
        title=(sanitize(f"tune {definition.name} · {definition.command}"),),
        phase=status.ended or "tuning",
        progress=f"{round_text}{done} of {len(in_round)} configurations" + (f", {failed} failed" if failed else ""),
        share=done / len(in_round) if in_round else None,
        clock=f"{clock(now - status.begun)} elapsed" if not status.ended else "",
        quality="",
        quality_style="",
        notice=notice,
        notice_style=style,
    )


def _notice(tune: Tune, summary: TuneSummary, frame: Frame | None, now: float) -> tuple[str, StatusStyle]:
    status = tune.status
    if not status.ended:
        if status.flags is None:
            return "choosing the next configuration", ""
        since = clock(max(0.0, now - status.since))
        flags = sanitize(format_flags(status.flags))
        if status.phase == "starting":
            return f"{flags}: the server is starting, {since}; enter opens its log", ""
        if status.phase == "stopping":
            return f"{flags}: the server is stopping, {since}", ""
        progress = f", {phase(frame)} {frame.done}/{frame.of}" if frame and frame.of else ""
        return f"{flags}: {status.phase}{progress}, {since}; enter opens it", ""
    best = next((row for row in summary.leaderboard if row.state == "done"), None)
    leader = f"; best: {sanitize(format_flags(best.flags))}, {rate(best.out_tps)} tok/s at C={best.c}" if best else ""
    ended = status.ended
    if ended == "done":
        return f"all configurations are done{leader}", "good"
    if ended == "stopped":
        return f"stopped; the same command resumes it{leader}", "warn"
    if ended == "failed":
        return f"failed, see tune.log; the same command resumes it{leader}", "bad"
    return f"interrupted; the same command resumes it{leader}", "bad"


# configurations and leaderboard


def column_widths(lines: Sequence[ConfigurationLine], width: int) -> tuple[int, int]:
    """Return how many figures fit, and the width of the flags: as wide as needed, at most half of the line."""
    needed = min(max([_MIN_FLAGS, *(cell_len(line.flags) for line in lines)]), width // 2)
    room, count = width - _STATE - 4, 0
    for column in _WIDTHS:
        if room - column < needed:
            break
        room, count = room - column, count + 1
    return count, max(_MIN_FLAGS, room)


def titles(columns: tuple[int, int], first: str) -> str:
    """`first` is the title of the first column."""
    count, flags = columns
    figures = "".join(rjust(name, column) for name, column in list(zip(_TITLES, _WIDTHS, strict=True))[:count])
    return f"   {ljust(first, _STATE)}{ljust('flags', flags)}{figures}"


def configuration_spans(line: ConfigurationLine, columns: tuple[int, int], here: bool) -> Line:
    count, flags = columns
    figures = "".join(rjust(text, column) for text, column in list(zip(line.figures, _WIDTHS, strict=True))[:count])
    bold = "bold" if here else ""
    return [
        ("› " if here else "  ", "cursor"),
        (ljust(line.state, _STATE) + " ", line.style),
        (ljust(line.flags, flags), bold or ("dim" if line.style == "dim" else "")),
        ("  " if line.error else "", ""),
        (line.error or figures, "bad" if line.error else bold),
    ]


def _configuration_line(status: ConfigurationStatus, summary: TuneSummary, frame: Frame | None) -> ConfigurationLine:
    row = status.row
    failed = status.state == "broken"
    return ConfigurationLine(
        key=configuration_key(status.flags),
        style=_STYLES.get(status.state, "first"),
        state=f"{_SIGNS[status.state]} {'failed' if failed else status.state}",
        flags=sanitize(format_flags(status.flags)) + _marks(status, summary),
        figures=_live_figures(frame) if frame else _figures(row),
        error=sanitize(row.reason) if failed and row else "",
    )


def _marks(status: ConfigurationStatus, summary: TuneSummary) -> str:
    row = status.row
    if row is None or row.state != "done" or status.state != "done":
        return ""
    best = " ▸" if summary.leaderboard[0] == row else ""
    return best + (" ◆" if row in summary.front_ttft or row in summary.front_energy else "")


def _figures(row: Start | None) -> tuple[str, ...]:
    if row is None or row.state == "broken":
        return ("",) * len(_TITLES)
    return (
        rate(row.out_tps),
        MISSING if row.c is None else str(row.c),
        seconds(row.ttft_s),
        rate(row.j_per_token),
        rate(row.mean_w),
        gib(row.peak_memory),
        seconds(row.start_s),
        MISSING if row.errors is None else str(row.errors),
    )


def _live_figures(frame: Frame) -> tuple[str, ...]:
    gpus = used_gpus(frame.telemetry, frame.servers) if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    per_token = sum(watts) / frame.out_tps if watts and frame.out_tps else None
    return (
        rate(frame.out_tps),
        str(frame.c),
        seconds(frame.ttft_s),
        rate(per_token),
        rate(sum(watts) if watts else None),
        gib(sum(used) if used else None),
        "",
        str(frame.errors),
    )


def _leaderboard_lines(summary: TuneSummary) -> list[ConfigurationLine]:
    best = next((row for row in summary.leaderboard if row.state == "done"), None)
    lines = []
    for rank, (row, standing) in enumerate(zip(summary.leaderboard, summary.standings, strict=True), start=1):
        done = row.state == "done"
        shown = "failed" if not done else "" if standing == "best" else standing
        lines.append(
            ConfigurationLine(
                key=configuration_key(row.flags),
                style="good" if row is best else "dim" if done else "bad",
                state=f"{'▸' if row is best else rank} {shown}",
                flags=sanitize(format_flags(row.flags)),
                figures=_figures(row),
                error="" if done else sanitize(row.reason),
            )
        )
    return lines


# Pareto fronts and flag effects


def _finding_lines(summary: TuneSummary) -> list[Line]:
    """Return lines for `wrap_lines`."""
    several = sum(row.state == "done" for row in summary.leaderboard) > 1
    lines: list[Line] = [[(ranking_sentence(summary), "")]] if several else []
    fronts = (("TTFT", summary.front_ttft, "ttft_s"), ("J/token", summary.front_energy, "j_per_token"))
    for name, front, figure in fronts:
        if front:
            lines.append([(f"Pareto front: tok/s and {name}", "title")])
        for row in front:
            value = getattr(row, figure)
            cost = seconds(value) if figure == "ttft_s" else f"{rate(value)} J"
            mark = " SIMULATED" if figure == "j_per_token" and row.simulated else ""
            figures = f"{rate(row.out_tps)} tok/s, {cost}{mark}  "
            lines.append([(figures, "bold"), (sanitize(format_flags(row.flags)), "")])
    known = [effect for effect in summary.effects if effect.pairs]
    if known:
        lines.append([("effect of each flag, all else equal", "title")])
    return [*lines, *map(_effect_line, known)]


def _effect_line(effect: Effect) -> Line:
    figures = f"{rate(effect.before)} → {rate(effect.after)}"
    spread = f", {signed_percent(effect.low)} to {signed_percent(effect.high)}" if effect.pairs > 1 else ""
    pairs = count_noun(effect.pairs, "pair", "pairs")
    return [
        (f"{signed_percent(effect.change)}  ", "bold"),
        (sanitize(f"{effect.flag} {effect.base} → {effect.value}"), ""),
        (f"  ({figures}; {pairs}{spread})", "dim"),
    ]


def wrap_lines(lines: Sequence[Line], width: int) -> list[Line]:
    """Wrap lines that are too wide, with the style of their first span."""
    result: list[Line] = []
    for line in lines:
        text = "".join(part for part, _ in line)
        if len(text) <= width - 1:
            result.append([(" ", ""), *line])
        else:
            parts = wrap(text, width - 1)
            result += [[(f" {part}", line[0][1] if not number else "")] for number, part in enumerate(parts)]
    return result


# server output


def failure_lines(row: Start, width: int) -> list[Line]:
    """Return why a configuration failed, and the last output of its server."""
    lines: list[Line] = [[(f" {part}", "bad")] for part in wrap(sanitize(row.reason), max(8, width - 2))]
    return [*lines, [], *log_lines(row.log, width)]


def log_lines(log: Sequence[str], width: int) -> list[Line]:
    if not log:
        return [[(" no output from the server yet", "dim")]]
    return [[(f" {part}", "")] for text in log for part in wrap(sanitize(text), max(8, width - 2))]
