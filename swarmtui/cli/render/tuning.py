"""Render tunes, A/B tests, the tuning log and advice as plain text whose tables are also Markdown."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from swarmtui.cli.render.table import BEST, align_table, wrap
from swarmtui.experiments.ab import AB_FIGURES, AbResult
from swarmtui.experiments.advice import Advice
from swarmtui.experiments.effects import TuneSummary, change_from, ranking_sentence
from swarmtui.experiments.grid import all_configurations, halving_rounds, launch_command
from swarmtui.experiments.sequential import CHECKPOINTS, detectable_at
from swarmtui.experiments.tune import result_line
from swarmtui.model.tuning import LoggedChange, Objective, Start, TuneFile, format_flags
from swarmtui.numbers import MISSING, gib, local_time, short_percent, signed_percent, significant
from swarmtui.text import count_noun, escape, sanitize

_OBJECTIVES: dict[Objective, str] = {"out_tps": "output tok/s", "ttft_s": "TTFT", "j_per_token": "J/token"}
_LOG_WIDTH = 96
_GPU_COLUMNS = (6, 7, 8)  # of the leaderboard


def tune_text(found: TuneSummary) -> str:
    if not found.leaderboard:
        return "no configuration is finished yet\n"
    parts = [
        _leaderboard(found),
        _ranking_note(found),
        _pareto_fronts(found),
        _effects(found),
        _failures(found.leaderboard),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _leaderboard(found: TuneSummary) -> list[str]:
    rows = found.leaderboard
    titles = [
        "", "configuration", "tok/s", "C", "TTFT s", f"vs {BEST}", "J/token", "GPU W", "GPU GiB", "start s", "err",
    ]  # fmt: skip
    cells = [
        [
            BEST if rank == 1 and row.state == "done" else str(rank),
            sanitize(format_flags(row.flags)),
            "failed" if row.state == "broken" else significant(row.out_tps),
            MISSING if row.c is None else str(row.c),
            significant(row.ttft_s, 3),
            f"{signed_percent(change_from(rows[0], row))} {standing}" if standing in ("tied", "behind") else MISSING,
            significant(row.j_per_token, 3),
            significant(row.mean_w, 3),
            gib(row.peak_memory),
            significant(row.start_s, 2),
            MISSING if row.errors is None else str(row.errors),
        ]
        for rank, (row, standing) in enumerate(zip(rows, found.standings, strict=True), start=1)
    ]
    used = [k for k in range(len(titles)) if k < 5 or any(row[k] != MISSING for row in cells)]
    titles, cells = [titles[k] for k in used], [[row[k] for k in used] for row in cells]
    right = [True, False, *[True] * (len(titles) - 2)]
    table = align_table(titles, cells, right, {1: 20})
    if any(k in used for k in _GPU_COLUMNS):
        simulated = " They are SIMULATED." if any(row.simulated for row in rows) else ""
        table += ["", *wrap(f"J/token, W and GiB are of GPUs only, each a sum over the GPUs.{simulated}")]
    return table


def _ranking_note(found: TuneSummary) -> list[str]:
    """Say how reliable the ranking is."""
    return wrap(ranking_sentence(found)) if sum(row.state == "done" for row in found.leaderboard) > 1 else []


def _pareto_fronts(found: TuneSummary) -> list[str]:
    lines = []
    fronts = (("TTFT", " s", "ttft_s", found.front_ttft), ("J/token", " J/token", "j_per_token", found.front_energy))
    for name, unit, field, front in fronts:
        if not front:
            continue
        simulated = " (SIMULATED)" if field == "j_per_token" and any(row.simulated for row in front) else ""
        points = "; ".join(
            f"{format_flags(row.flags)} ({significant(row.out_tps)} tok/s, {significant(getattr(row, field), 3)}{unit})"
            for row in front
        )
        lines += wrap(sanitize(f"Pareto front of tok/s and {name}{simulated}: {points}"))
    return lines


def _effects(found: TuneSummary) -> list[str]:
    known = [effect for effect in found.effects if effect.pairs]
    if not known:
        return []
    cells = [
        [
            sanitize(effect.flag),
            f"{effect.base} → {effect.value}",
            significant(effect.before),
            significant(effect.after),
            signed_percent(effect.change),
            f"{signed_percent(effect.low)} … {signed_percent(effect.high)}" if effect.pairs > 1 else MISSING,
            str(effect.pairs),
        ]
        for effect in known
    ]
    titles = ["flag", "value", f"{_OBJECTIVES[found.objective]} before", "after", "change", "range over pairs", "pairs"]
    return align_table(titles, cells, [False] * 2 + [True] * 5, {0: 10, 1: 10})


def _failures(rows: Sequence[Start]) -> list[str]:
    lines = []
    for row in rows:
        if row.state == "broken":
            lines += wrap(sanitize(result_line(row)))
            lines += [f"    {sanitize(line)[:_LOG_WIDTH]}" for line in row.log]
    return lines


def tune_commands_text(tune: TuneFile) -> str:
    """List every command that a tune will run, for the user to confirm."""
    flag_sets = all_configurations(tune)
    lines = [f"{count_noun(len(flag_sets), 'configuration', 'configurations')}; commands to run (PORT: a free port):"]
    launches = [launch_command(tune, flags, "PORT") for flags in flag_sets]
    lines += [f"  {escape(str(launch), keep='')}" for launch in launches]
    if tune.stop:
        stops = dict.fromkeys(shlex.join(launch.stop) for launch in launches)
        lines += [f"stop command: {escape(stop, keep='')}" for stop in stops]
    if tune.directory:
        lines.append(f"directory: {escape(tune.directory, keep='')}")
    if len(rounds := halving_rounds(tune)) > 1:
        each = (f"{r.configurations} configurations with {short_percent(r.share)} of the requests" for r in rounds)
        lines.append(f"rounds: {', then '.join(each)}")
    return "\n".join(lines)


def ab_text(result: AbResult) -> str:
    """Show the runs of both sides, the decision, and for an A/A test the noise floor."""
    test = result.test
    a, b = result.values("A"), result.values("B")
    cells = [
        [str(k + 1), significant(a[k]) if k < len(a) else MISSING, significant(b[k]) if k < len(b) else MISSING]
        for k in range(max(len(a), len(b)))
    ]
    name = AB_FIGURES[test.figure][0]
    same = f" with agent header: {test.agent_header}" if test.agent_header else " (same as A)" if test.aa else ""
    lines = [f"A  {sanitize(test.a)}", f"B  {sanitize(test.b)}{same}"]
    lines += ["", *align_table(["run", f"A {name}", f"B {name}"], cells, right=[True] * 3)] if cells else []
    lines += [
        "",
        *(
            wrap(f"B compared with A, {name}: {result.decision.sentence}")
            if result.decision
            else ["no verdict: too few runs"]
        ),
    ]
    if result.header:
        lines += wrap(result.header.sentence)
    if test.aa and result.decision and result.decision.spread is not None:
        lines += wrap(_noise_floor(result.decision.spread))
    if not test.aa and result.sessions("A") and result.sessions("B"):
        lines.append(f"details: swarmtui compare {result.sessions('A')} {result.sessions('B')}")
    return "\n".join(lines) + "\n"


def _noise_floor(spread: float) -> str:
    """`noise floor: runs of the same server differ by 1.2 % (CV); …`"""
    powers = ", ".join(f"{signed_percent(detectable_at(n, spread))} with {n} v {n} runs" for n in CHECKPOINTS[:5])
    return (
        f"noise floor: runs of the same server differ by {short_percent(spread, 2)} (CV); "
        f"detectable with 80 % power: {powers}"
    )


def log_text(changes: Sequence[LoggedChange]) -> str:
    if not changes:
        return "no changes yet: `swarmtui run --baseline last` and `swarmtui ab` add them\n"
    titles = ["#", "when", "change", "effect", "verdict", "kept?", "note"]
    rows = [
        [
            str(change.number),
            local_time(change.created),
            sanitize(change.what),
            signed_percent(change.change),
            change.verdict,
            change.kept,
            sanitize(change.note),
        ]
        for change in changes
    ]
    right = [True, False, False, True, *[False] * 3]
    return "\n".join(align_table(titles, rows, right, {2: 20, 6: 10})) + "\n"


def advice_text(found: Sequence[Advice]) -> str:
    if not found:
        return "no advice: nothing in this session suggests a change\n"
    return "".join(
        f"{line}\n"
        for advice in found
        for line in (*wrap(sanitize(f"{advice.topic}: {advice.sentence}")), *wrap(f"    {sanitize(advice.evidence)}"))
    )
