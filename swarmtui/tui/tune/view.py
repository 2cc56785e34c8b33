"""The view of a tune: header, configurations, leaderboard, Pareto fronts and the effect of each flag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swarmtui.analysis.machine.energy import used_gpus
from swarmtui.analysis.tuning.outcome import TuneOutcome
from swarmtui.experiments.effects import TuneSummary, summarise_tune
from swarmtui.experiments.grid import ConfigurationStatus, configuration_statuses, round_title
from swarmtui.model.client_protocol import Frame
from swarmtui.model.tuning import Tune, TuneSteering, configuration_key, format_flags
from swarmtui.numbers import clock, rate
from swarmtui.report.table import Block, Cell, Code, Fields, Sentence, Table
from swarmtui.report.tune_outcome import outcome_blocks
from swarmtui.report.tuning import (
    configuration_table,
    leaderboard,
    result_figures,
    shown_flags,
    trade_off_chart,
    tune_findings,
)
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.chart_panel import ChartView
from swarmtui.tui.live.header import HeaderView, StatusStyle, phase

_SIGNS = {
    "waiting": "·", "starting": "◌", "warming up": "◐", "running": "▶", "stopping": "◑", "done": "●", "broken": "✖",
}  # fmt: skip
_NO_CHART = "no finished configuration yet: each will be a point, by its TTFT and output tok/s"
_NOT_STEERED = TuneSteering()
_CODES: dict[str, Code] = {"waiting": "detail", "done": "ok", "broken": "failed"}


class ConfigurationsView(NamedTuple):
    """A table with a key for each row, which identifies the configuration."""

    table: Table
    keys: tuple[str, ...]


class TuneView(NamedTuple):
    header: HeaderView
    configurations: ConfigurationsView
    leaderboard: ConfigurationsView
    findings: tuple[Block, ...]
    chart: ChartView
    note: str
    command: str = ""
    result_title: str = "Pareto fronts and flags"
    no_findings: str = "a Pareto front needs two finished configurations"


def tune_view(
    tune: Tune,
    frame: Frame | None,
    now: float,
    best_first: bool,
    outcome: TuneOutcome | None = None,
    steering: TuneSteering = _NOT_STEERED,
) -> TuneView:
    """`frame` is the newest of the current configuration's run; `now` is the wall clock.

    `outcome` is what an automatic tune has found so far, `steering` what the user decided.
    """
    statuses = configuration_statuses(tune)
    summary = summarise_tune(tune.definition, tune.starts)
    ranks = {configuration_key(row.flags): rank for rank, row in enumerate(summary.leaderboard)}
    shown = statuses
    if best_first:
        shown = sorted(statuses, key=lambda status: ranks.get(configuration_key(status.flags), len(statuses)))
    chart = trade_off_chart(summary, tune.starts)
    simulated = any(row.simulated for row in tune.starts)
    titles = {}
    if tune.definition.auto is not None:
        titles = {
            "result_title": "result" if tune.status.ended else "result so far",
            "no_findings": "the command as it is comes first; the result follows",
        }
    return TuneView(
        header=_header(tune, statuses, summary, frame, now, steering),
        configurations=ConfigurationsView(
            configuration_table(
                [_configuration(status, summary, frame if status.is_active else None) for status in shown],
                (
                    "rank",
                    "change",
                    "verdict",
                    "starts",
                    *(() if any(row.state == "broken" for row in tune.starts) else ("problem",)),
                ),
            ),
            tuple(configuration_key(status.flags) for status in shown),
        ),
        leaderboard=ConfigurationsView(
            leaderboard(summary), tuple(configuration_key(row.flags) for row in summary.leaderboard)
        ),
        chart=ChartView((chart,), (chart.note,)) if chart.series else ChartView(empty=_NO_CHART),
        findings=tuple(outcome_blocks(outcome) if outcome else tune_findings(summary)),
        note=" · ".join(
            part
            for part in (
                "in order of the leaderboard" if best_first else "" if tune.definition.auto else "file order",
                f"{'▸ best ' if summary.ranked else ''}◆ on a Pareto front" if summary.leaderboard else "",
                "GPU SIMULATED" if simulated else "",
                "W, GiB: sums over GPUs" if any(row.mean_w is not None for row in tune.starts) else "",
            )
            if part
        ),
        command=outcome.command if outcome else summary.command,
        **titles,
    )


# header


def _header(
    tune: Tune,
    statuses: Sequence[ConfigurationStatus],
    summary: TuneSummary,
    frame: Frame | None,
    now: float,
    steering: TuneSteering,
) -> HeaderView:
    definition, status = tune.definition, tune.status
    newest = max((each.round for each in statuses), default=0)
    in_round = [each for each in statuses if each.round == newest]
    done = sum(each.state in ("done", "broken") for each in in_round)
    failed = sum(each.state == "broken" for each in statuses)
    title = round_title(definition, newest)
    round_text = f"{title}, " if title and in_round else ""
    notice, style = _notice(tune, summary, frame, now)
    progress, share = (
        f"{round_text}{done} of {len(in_round)} configurations",
        done / len(in_round) if in_round else None,
    )
    if definition.auto is not None:
        progress, share = _spent(tune)
    return HeaderView(
        title=(sanitize(f"tune {definition.name} · {definition.command}"),),
        phase=status.ended or "tuning",
        progress=" · ".join((progress + (f", {failed} failed" if failed else ""), *_steered(tune, steering))),
        share=share,
        clock=(f"{clock(now - status.begun)} elapsed",) if not status.ended else (),
        quality=(),
        quality_style="",
        notice=(notice,),
        notice_style=style,
    )


def _steered(tune: Tune, steering: TuneSteering) -> list[str]:
    """Say what the user decided, as long as it applies."""
    waiting = [flags for flags in steering.added if not any(start.flags == flags for start in tune.starts)]
    return [
        *(["stops after this start"] if steering.stop_after is not None and not tune.status.ended else []),
        *([f"pinned: {format_flags(steering.pins)}"] if steering.pins else []),
        *([f"next: {', '.join(map(format_flags, waiting))}"] if waiting and not tune.status.ended else []),
        *([f"vetoed: {', '.join(map(format_flags, steering.vetoes))}"] if steering.vetoes else []),
    ]


def _spent(tune: Tune) -> tuple[str, float | None]:
    """`7 starts, 3.2 of 45 min`"""
    spent, budget = sum(start.took_s or 0.0 for start in tune.starts), tune.status.budget_s
    of = f" of {budget / 60:g}" if budget else ""
    return (
        f"{count_noun(len(tune.starts), 'start')}, {spent / 60:.1f}{of} min",
        spent / budget if budget else None,
    )


def _notice(tune: Tune, summary: TuneSummary, frame: Frame | None, now: float) -> tuple[str, StatusStyle]:
    status = tune.status
    if not status.ended:
        if status.flags is None:
            return "choosing the next configuration", ""
        since = clock(max(0.0, now - status.since))
        limit = f", limit {rate(status.limit_tps)} tok/s" if status.limit_tps else ""
        flags = sanitize(f"{status.why}{limit}" if status.why else format_flags(status.flags))
        if status.phase == "starting":
            return f"{flags}: the server is starting, {since}; enter opens its log", ""
        if status.phase == "stopping":
            return f"{flags}: the server is stopping, {since}", ""
        progress = f", {phase(frame)} {frame.done}/{frame.of}" if frame and frame.of else ""
        return f"{flags}: {status.phase}{progress}, {since}; enter opens it", ""
    best = next((row for row in summary.leaderboard if row.state == "done"), None)
    word = "best" if summary.ranked else "leads so far"
    # The flags are last, as they are cut first.
    what = f"{rate(best.out_tps)} tok/s at C={best.c} with {sanitize(shown_flags(best.flags))}" if best else ""
    leader = f"; {word}: {what}" if best else ""
    # The line above says how it ended.
    ended = status.ended
    if ended == "done" and tune.definition.auto is not None:
        return f"the search is over{leader}", "good"
    if ended == "done":
        return f"all configurations are done{leader}", "good"
    if ended == "stopped":
        return f"the same command resumes it{leader}", "warn"
    where = "see tune.log; " if ended == "failed" else ""
    return f"{where}the same command resumes it{leader}", "bad"


# configurations


def _configuration(status: ConfigurationStatus, summary: TuneSummary, frame: Frame | None) -> Fields:
    row, failed = status.row, status.state == "broken"
    figures = _live_figures(frame) if frame else result_figures(row) if row and not failed else {}
    return {
        **figures,
        "state": Cell(
            f"{_SIGNS[status.state]} {'failed' if failed else status.state}", _CODES.get(status.state, "active")
        ),
        "flags": Cell(
            shown_flags(status.flags) + _marks(status, summary),
            None if row else "detail",
        ),
        "problem": Cell(row.reason, "failed") if failed and row else "",
    }


def _marks(status: ConfigurationStatus, summary: TuneSummary) -> str:
    row = status.row
    if row is None or row.state != "done" or status.state != "done":
        return ""
    best = " ▸" if summary.ranked and summary.leaderboard[0].flags == row.flags else ""
    fronts = [found.flags for found in (*summary.front_ttft, *summary.front_energy)]
    return best + (" ◆" if row.flags in fronts else "")


def _live_figures(frame: Frame) -> Fields:
    gpus = used_gpus(frame.telemetry, frame.servers) if frame.telemetry else ()
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return {
        "tps": frame.out_tps,
        "c": frame.c,
        "ttft": frame.ttft_s,
        "j_token": sum(watts) / frame.out_tps if watts and frame.out_tps else None,
        "gpu_w": sum(watts) if watts else None,
        "gpu_gib": sum(used) if used else None,
        "errors": frame.errors,
    }


# server output


def log_sentences(log: Sequence[str]) -> list[Sentence]:
    return [Sentence(line) for line in log] or [Sentence("no output from the server yet", "detail")]
