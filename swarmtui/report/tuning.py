"""Build the tables and sentences of tunes, A/B tests, the tuning log and advice."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from swarmtui.analysis.capacity.words import known_agents
from swarmtui.analysis.compare.power import PowerEffect
from swarmtui.analysis.compare.sequential import CHECKPOINTS, detectable_at
from swarmtui.analysis.compare.verdicts import Interval, verdict_text
from swarmtui.experiments.ab import AB_FIGURES, AbResult
from swarmtui.experiments.effects import Effect, Standing, TuneSummary, change_from, ranking_sentence, standing_text
from swarmtui.experiments.grid import all_configurations, has_one_server, launch_command, tune_rounds
from swarmtui.experiments.live_knobs import knob_commands
from swarmtui.experiments.runner import result_line
from swarmtui.model.tuning import Flags, LiveKnob, LoggedChange, Objective, Start, TuneFile, format_flags
from swarmtui.numbers import gib, local_time, rate, seconds, short_percent, signed_percent, significant
from swarmtui.report.chart import Chart, ChartSeries, Points
from swarmtui.report.table import MARKS, Block, Cell, Code, Column, Fields, Sentence, Table, Value, keyed, tabulate
from swarmtui.report.verdicts import SIGNS, verdict_cell
from swarmtui.text import count_noun, escape

OBJECTIVES: dict[Objective, str] = {
    "out_tps": "output tok/s", "ttft_s": "TTFT", "j_per_token": "J/token", "agents": "agents",
}  # fmt: skip
# What the standing of a configuration means beside the best one.
_STANDINGS: dict[Standing, Code] = {"behind": "slower", "tied": "unsure"}
# Longer flags have no room beside their point: it has the rank.
_LONGEST_NAME = 24
_GPU = ("j_token", "j_prefill", "j_decode", "gpu_w", "gpu_gib")
_CONFIGURATION = (
    keyed("state", "state", right=False),
    keyed("rank", "rank", right=False),
    # Configurations begin with the same flags, and differ by those at the end.
    keyed("flags", "configuration", right=False, least=36)._replace(keeps_end=True),
    keyed("agents", "agents"),
    keyed("tps", "tok/s", rate),
    keyed("limit", "limit", rate),
    keyed("c", "C"),
    keyed("starts", "starts"),
    keyed("change", "vs first"),
    keyed("verdict", "verdict", right=False),
    keyed("ttft", "TTFT", seconds),
    keyed("j_token", "J/token", lambda value: significant(value, 3)),
    keyed("j_prefill", "prefill J/token", lambda value: significant(value, 3)),
    keyed("j_decode", "decode J/token", lambda value: significant(value, 3)),
    keyed("gpu_w", "GPU W", lambda value: significant(value, 3)),
    keyed("gpu_gib", "GPU GiB", gib),
    keyed("start", "start", seconds),
    keyed("errors", "err"),
    keyed("problem", "problem", right=False, least=10),
)
_DROP = (
    "start", "errors", "gpu_gib", "gpu_w", "j_prefill", "j_decode", "verdict", "j_token", "ttft", "limit", "c",
    "starts", "change", "problem",
)  # fmt: skip


def configuration_table(rows: Sequence[Fields], leave_out: Sequence[str]) -> Table:
    """Tabulate configurations: values by column id; what a row does not have is blank."""
    # Figures of GPUs need some, those of prompts a sweep of power limits, and the others an automatic tune.
    seldom = (*_GPU, "agents", "limit")
    parts = [part for part in seldom if all(row.get(part) is None for row in rows)]
    return tabulate("", rows, _CONFIGURATION, drop=_DROP).without((*leave_out, *parts)).without_missing()


def result_figures(row: Start) -> dict[str, Value]:
    """Return the figures of a finished configuration by column id, of agents with the range: `12 (11–13)`."""
    agents = None if row.agents is None else known_agents(row.agents, row.agents_low, row.agents_high)
    return {
        "tps": Cell("failed", "failed") if row.state == "broken" else row.out_tps,
        "agents": agents,
        "limit": row.limit_tps,
        "c": row.c,
        "ttft": row.ttft_s,
        "j_token": row.j_per_token,
        "j_prefill": row.prefill_j_per_token,
        "j_decode": row.decode_j_per_token,
        "gpu_w": row.mean_w,
        "gpu_gib": row.peak_memory,
        "start": row.start_s,
        "errors": row.errors,
    }


def leaderboard(found: TuneSummary) -> Table:
    """List the best first; it is marked once configurations that were restarted are ranked."""
    rows: list[Fields] = []
    for rank, (row, standing) in enumerate(zip(found.leaderboard, found.standings, strict=True), start=1):
        best = rank == 1 and found.ranked
        apart = None if rank == 1 else change_from(found.leaderboard[0], row, found.objective)
        code = _STANDINGS.get(standing)
        change = (SIGNS[code] if code else "", signed_percent(apart) if apart is not None else "")
        words = standing_text(standing, found.objective)
        rows.append(
            result_figures(row)
            | {
                "rank": Cell(MARKS["best"], "best") if best else str(rank),
                "flags": Cell(
                    "the command" if found.auto and not row.flags else format_flags(row.flags), "best" if best else None
                ),
                "starts": row.starts,
                "change": Cell(" ".join(filter(None, change)), code) if any(change) else None,
                "verdict": Cell(words, code) if words else None,
            }
        )
    table = configuration_table(rows, ("state", "problem", *(("starts",) if found.one_server else ())))
    if not any(column.id in _GPU for column in table.columns):
        return table
    simulated = " They are SIMULATED." if any(row.simulated for row in found.leaderboard) else ""
    return table._replace(note=f"J/token, W and GiB are of GPUs only, each a sum over the GPUs.{simulated}")


def tune_blocks(found: TuneSummary) -> list[Block]:
    if not found.leaderboard:
        return [Sentence("no configuration is finished yet")]
    blocks = [leaderboard(found), *tune_findings(found)]
    for row in found.leaderboard:
        if row.state == "broken":
            blocks += [Sentence(result_line(row)), *(Sentence(line, "detail") for line in row.log)]
    return blocks


def tune_findings(found: TuneSummary) -> list[Block]:
    """Say how reliable the ranking is and how to start the first, and show Pareto fronts and effects of flags."""
    several = sum(row.state == "done" for row in found.leaderboard) > 1
    blocks: list[Block] = [Sentence(found.power_sentence, "lead")] if found.power_sentence else []
    blocks += [power_table(found)] if found.power else []
    blocks += [Sentence(ranking_sentence(found))] if several else []
    if found.command:
        which = "the best" if found.ranked else "the first"
        blocks += [Sentence(f"start {which}:"), Sentence(found.command, "command")]
    by_ttft = [(row, seconds(row.ttft_s)) for row in found.front_ttft]
    by_energy = [(row, f"{significant(row.j_per_token, 3)} J/token") for row in found.front_energy]
    simulated = " (SIMULATED)" if any(row.simulated for row in found.front_energy) else ""
    for name, front in (("TTFT", by_ttft), (f"J/token{simulated}", by_energy)):
        points = (f"{format_flags(row.flags)} ({rate(row.out_tps)} tok/s, {other})" for row, other in front)
        blocks += [Sentence(f"Pareto front of tok/s and {name}: {'; '.join(points)}")] if front else []
    known = [effect for effect in found.effects if effect.pairs]
    number = rate if found.objective == "out_tps" else significant
    columns: list[Column[Effect]] = [
        Column("flag", "flag", lambda effect: effect.flag, right=False, least=10),
        Column("value", "value", lambda effect: f"{effect.base} → {effect.value}", right=False, least=10),
        Column("before", f"{OBJECTIVES[found.objective]} before", lambda effect: effect.before, number, short="before"),
        Column("after", "after", lambda effect: effect.after, number),
        Column("change", "change", lambda effect: effect.change, signed_percent),
        Column("range", "range over pairs", lambda of: between(of.low, of.high) if of.pairs > 1 else None),
        Column("pairs", "pairs", lambda effect: effect.pairs),
    ]
    note = f"before, after: {OBJECTIVES[found.objective]}, all else equal"
    return blocks + ([tabulate("Effect of each flag", known, columns, note, ("pairs", "range"))] if known else [])


def trade_off_chart(found: TuneSummary, starts: Sequence[Start]) -> Chart:
    """Chart the configurations over their TTFT, with their single starts: up and to the left is better."""

    def points(rows: Iterable[Start]) -> Points:
        return tuple((row.ttft_s, row.out_tps) for row in rows if row.ttft_s and row.out_tps)

    known = [row for row in found.leaderboard if points([row])]
    names, note = tuple(shown_flags(row.flags) for row in known), "up and to the left is better"
    if any(len(name) > _LONGEST_NAME for name in names):
        names, note = tuple(str(rank) for rank in range(1, len(known) + 1)), f"{note}; numbers are ranks"
    means, single = points(known), points(starts)
    front = points(found.front_ttft) if len(found.front_ttft) > 1 else ()
    best = points(found.leaderboard[:1] if found.ranked else ())
    series = (
        ChartSeries(
            "configuration", means, tuple((x, "best") for x, _ in best), stroke="points",
            names=names,
        ),
        ChartSeries("Pareto front", front, hue="good", stroke="dotted"),
        ChartSeries("one start", single, hue="dim", stroke="points", hollow=frozenset(x for x, _ in single)),
    )  # fmt: skip
    shown = tuple(one for one in series if one.points)
    return Chart("trade-off", "", "xy", "TTFT s", "output tok/s", shown, note=note, from_zero=False)


def shown_flags(flags: Flags) -> str:
    return format_flags(flags) if flags else "the command"


def power_table(found: TuneSummary) -> Table:
    columns: list[Column[PowerEffect]] = [
        Column("watts", "limit W", lambda effect: f"{effect.watts:g}"),
        Column("tps", "tok/s", lambda effect: effect.tps, signed_percent),
        Column("tps_range", "between", lambda effect: _between(effect.tps_range)),
        Column("energy", "J/token", lambda effect: effect.energy, signed_percent),
        Column("energy_range", "between", lambda effect: _between(effect.energy_range)),
    ]
    base, passes = found.power[0].base_w, found.power[0].passes
    note = f"changes from {base:g} W, in {count_noun(passes, 'pass', 'passes')}; all ranges hold together (95 %)"
    return tabulate("Power limits", found.power[::-1], columns, note).without_missing()


def _between(interval: Interval | None) -> str | None:
    return None if interval is None else between(interval.low, interval.high)


def between(low: float | None, high: float | None) -> str | None:
    """`−3 % … +5 %`"""
    return None if low is None or high is None else f"{signed_percent(low)} … {signed_percent(high)}"


def commands_text(tune: TuneFile) -> str:
    """List every command that a tune will run, for the user to confirm; what is not printable is escaped."""
    flag_sets = all_configurations(tune)
    lines = [f"{count_noun(len(flag_sets), 'configuration')}; commands to run (PORT: a free port):"]
    launches = [launch_command(tune, flags, "PORT") for flags in flag_sets]
    lines += [f"  {escape(command, keep='')}" for command in dict.fromkeys(map(str, launches))]
    for knob in tune.knob:
        lines += knob_lines(knob)
    if tune.stop:
        stops = dict.fromkeys(shlex.join(launch.stop) for launch in launches)
        lines += [f"stop command: {escape(stop, keep='')}" for stop in stops]
    if tune.directory:
        lines.append(f"directory: {escape(tune.directory, keep='')}")
    rounds = tune_rounds(tune)
    screens = [round_ for round_ in rounds if not round_.restart]
    if len(screens) > 1:
        each = (f"{r.configurations} configurations with {short_percent(r.share)} of the requests" for r in screens)
        lines.append(f"rounds: {', then '.join(each)}")
    if has_one_server(tune):
        times = count_noun(len(rounds), "time")
        lines.append(f"the server is started once, and each configuration is measured {times} (restarts)")
    elif restarts := len(rounds) - len(screens):
        finalists = f"the best {rounds[-1].configurations} are restarted" if screens else "each is started"
        lines.append(f"{finalists} {count_noun(restarts, 'time')}, to rank them (restarts, finalists)")
    return "\n".join(lines)


def knob_lines(knob: LiveKnob) -> list[str]:
    """Say what a knob changes while the server runs, with its commands."""
    if knob.kind == "power":
        gpus = f"GPU {', '.join(map(str, knob.gpus))}" if knob.gpus else "the GPUs of the server"
        limits = ", ".join(f"{watts} W" for watts in knob.watts)
        return [f"while it runs, the power limit of {gpus} is set to {limits}; it is restored at the end"]
    applied, restored = zip(*(knob_commands(knob, value, "PORT") for value in knob.values), strict=True)
    lines = [f"while it runs, {escape(knob.key, keep='')}:"]
    lines += [f"  {escape(shlex.join(words), keep='')}" for words in dict.fromkeys(applied)]
    undo = [escape(shlex.join(words), keep="") for words in dict.fromkeys(restored) if words]
    return [*lines, "to restore it:", *(f"  {words}" for words in undo)] if undo else [*lines, "it is not restored"]


def ab_blocks(result: AbResult) -> list[Block]:
    """Show the runs of both sides, the decision, and for an A/A test the noise floor."""
    test = result.test
    name = AB_FIGURES[test.figure][0]
    same = f" with agent header: {test.agent_header}" if test.agent_header else " (same as A)" if test.aa else ""
    columns = [keyed("run", "run"), keyed("a", f"A {name}"), keyed("b", f"B {name}")]
    both = zip_longest(result.values("A"), result.values("B"))
    runs: list[Fields] = [{"run": run, "a": a, "b": b} for run, (a, b) in enumerate(both, start=1)]
    decision = result.decision
    blocks: list[Block] = [Sentence(f"A  {test.a}"), Sentence(f"B  {test.b}{same}")]
    blocks += [tabulate("", runs, columns)] if runs else []
    said = decision.sentence if decision else f"not sure yet: {verdict_text(None)} of each"
    blocks.append(Sentence(f"B compared with A, {name}: {said}", "lead"))
    if result.note:
        blocks.append(Sentence(f"note: {result.note}", "note"))
    if result.header:
        blocks.append(Sentence(result.header.sentence))
    if test.aa and decision and (spread := decision.spread) is not None:
        seen = ", ".join(f"{signed_percent(detectable_at(n, spread))} with {n} v {n} runs" for n in CHECKPOINTS[:5])
        floor = f"noise floor: runs of the same server differ by {short_percent(spread, 2)}"
        blocks.append(Sentence(f"{floor}; changes that would very likely be seen: {seen}"))
    if not test.aa and result.sessions("A") and result.sessions("B"):
        command = f"swarmtui compare {result.sessions('A')} {result.sessions('B')}"
        blocks += [Sentence("details:"), Sentence(command, "command")]
    return blocks


def effect_text(change: LoggedChange, *, brief: bool = False) -> str:
    """Return the agents before and after, with their ranges unless `brief`, or the change of the throughput, or ""."""
    if change.agents is not None:
        numbers = "{} → {}".format(*change.agents_numbers or change.agents)
        return f"{(not brief and change.agents_detail) or numbers} agents"
    return "" if change.change is None else signed_percent(change.change)


def since_texts(change: LoggedChange) -> tuple[str, ...]:
    """`since then: --parallel 2 → 4: ? 9 (9–16) → 11 (11–17) agents`, from long to short"""
    effects = dict.fromkeys(effect_text(change, brief=brief) for brief in (False, True))
    cells = [verdict_cell(change.verdict, f"{effect} ".lstrip(), change.likely) for effect in effects]
    return tuple(f"since then: {what}{cell.text}" for what in (f"{change.what}: ", "") for cell in cells)


def log_table(changes: Sequence[LoggedChange], *, brief: bool = False) -> Table:
    """List the changes; `brief` cells leave room for the verdict on a narrow page."""
    time_form = "%m-%d %H:%M" if brief else "%Y-%m-%d %H:%M"
    columns: list[Column[LoggedChange]] = [
        Column("number", "#", lambda change: change.number),
        Column("created", "when", lambda change: local_time(change.created, time_form), right=False),
        Column("what", "change", lambda change: change.what, right=False, least=20, keeps_end=True),
        Column("change", "effect", lambda change: effect_text(change, brief=brief) or None),
        Column("verdict", "verdict", lambda change: verdict_cell(change.verdict, likely=change.likely), right=False),
        Column("kept", "kept?", lambda change: change.kept, right=False),
        Column("note", "note", lambda change: change.note, right=False, least=10),
    ]
    return tabulate("", changes, columns, drop=("note", "created"))


def log_blocks(changes: Sequence[LoggedChange]) -> list[Block]:
    hint = Sentence("no changes yet: `swarmtui run --baseline last` and `swarmtui ab` add them")
    return [log_table(changes) if changes else hint]
