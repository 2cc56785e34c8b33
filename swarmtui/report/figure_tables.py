"""Build the tables of a report with one row per level: throughput, latency, the machine, and what a load adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from swarmtui.analysis.capacity.agents import kv_sentence, session_kv
from swarmtui.analysis.levels.traces import server_block_size
from swarmtui.analysis.speed_of_light.session import KV_FULL
from swarmtui.model.load import Open, Sessions, traits
from swarmtui.model.plan import load_title
from swarmtui.model.record import WATERFALL_PARTS
from swarmtui.model.session import Level, Summary
from swarmtui.model.telemetry import KvFigures
from swarmtui.numbers import MISSING, percent
from swarmtui.report.level_columns import COLUMNS, mark_weak_base
from swarmtui.report.table import Table, tabulate


def _table(title: str, levels: Iterable[Level], ids: str, note: str = "") -> Table:
    """Build a table without the columns that have no value."""
    shown = list(levels)
    columns = mark_weak_base([COLUMNS[name] for name in ids.split()], shown)
    columns[0] = columns[0]._replace(title=load_title(shown))
    return tabulate(title, shown, columns, note).without_missing()


def throughput_tables(levels: Sequence[Level]) -> tuple[Table, ...]:
    several = levels if len(levels) > 1 else ()
    return (
        _table(
            "Throughput", levels, "load runs n errors cap_hits steady half_width wall prompt total stream in_flight",
            "output tok/s unless stated otherwise; ~: estimated",
        ),
        _table(
            "Latency", levels, "load ttft_range ttft_p90_range ttft_p99 tpot tpot_p90 e2e_range e2e_p90 stall",
            "median, below 5 answers with minimum and maximum; a percentile with its 95 % interval",
        ),
        _table(
            "Contention and speed-up", several,
            "load stream slowdown scaling wall_speedup token_ratio straggler passed",
        ),
    )  # fmt: skip


def load_tables(summary: Summary) -> tuple[Table, ...]:
    """Tabulate what is specific to a serial baseline, a swarm, an open loop or recorded sessions."""
    levels, load = summary.levels, summary.session.plan.load
    return (
        _serial_table(levels),
        _table(
            "Prompt and output throughput", [level for level in levels if traits(level.load).prompt_heavy],
            "load wall_s prompt wall total ttft_mean ttft_max",
            "tok/s over the wall time; prompt tokens are read, not generated",
        ),
        _table(
            "Open loop", [level for level in levels if level.rate is not None],
            "load n errors arrived served in_flight send_delay ttft ttft_tail e2e",
            f"arrivals: {load.arrival if isinstance(load, Open) else MISSING}; arrival and completion rate: requests/s "
            "as scheduled and as finished; latencies count from the scheduled time; send delay: p99, or the maximum "
            "below 299 requests",
        ),
        _sessions_table(levels, load if isinstance(load, Sessions) else Sessions()),
        kv_table(summary),
        _table(
            "Speculative decoding", [level for level in levels if level.speculation],
            "load stream spec_tokens spec_steps spec_drafted spec_share spec_at",
            "per agent = tokens/step × steps/s ; drafted: tokens per step; accepted: share of these; "
            "by position: how often the first, second … drafted token was right, of all drafts",
        ),
    )  # fmt: skip


def clean_table(levels: Sequence[Level]) -> Table:
    ids = "load cap_hits ok stream stream_clean"
    return _table("Without cap hits", levels if any(level.cap_hits for level in levels) else (), ids)


def _serial_table(levels: Sequence[Level]) -> Table:
    shown = [level for level in levels if level.serial and level.wall_s is not None]
    notes = [
        "serial: the tasks one after the other; speed-up: serial / concurrent wall time; clean: without cap hits; "
        "token ratio: tokens of the concurrent run / serial run"
    ]
    for level in shown:
        assert level.serial is not None
        if level.serial.reason:
            notes.append(f"C={level.c}: no clean speed-up: {level.serial.reason}")
        if level.serial.extrapolated:
            notes.append(f"C={level.c}: serial time is {level.serial.how}")
    ids = "load serial_s wall_s serial_speedup serial_clean token_ratio serial_tps wall slowdown"
    return _table("Serial and concurrent", shown, ids, "; ".join(notes))


def _sessions_table(levels: Sequence[Level], load: Sessions) -> Table:
    note = (
        "C: recorded sessions at a time, each with its sub-agents; jobs: sessions played from first to last request; "
        "jobs/h: requests as shares of their session; time per job: median, with pauses of at most "
        f"{load.max_gap_s:g} s{'' if load.time_scale == 1 else f' divided by {load.time_scale:g}'}; "
        "live context: tokens, mean; send delay: p99, or the maximum below 299 requests"
        f"{'' if load.rules is None else f'; rules of {load.rules}'}"
    )
    shown = [level for level in levels if level.replay is not None and traits(level.load).replayed]
    ids = "load jobs jobs_failed jobs_h jobs_h_user jobs_h_gpu job_s context send_delay"
    return _table("Sessions", shown, ids, note)


def kv_table(summary: Summary) -> Table:
    """Tabulate what the KV cache did; without rows if it was neither of use nor too small."""
    levels = [x for x in summary.levels if x.replay or (x.kv and _uses_cache(x.kv))]
    if not levels:
        return Table("", (), ())
    replays = [level.replay for level in levels if level.replay is not None]
    size = server_block_size(summary.servers) or 0
    known = {0: "; the size of its blocks is not known", 1: ", token by token"}
    blocks = known.get(size, f", in blocks of {size} tokens")
    notes = ["hit rate: share of prompt tokens of the measured requests from the prefix cache"]
    if replays:
        notes.append(
            f"at most: with a cache that keeps all{blocks}; recorded: prompt tokens of the trace; prompt error: as the "
            "server counted them, compared with the trace"
        )
    if any(replay.hit_rate_by == "server" for replay in replays):
        notes.append("hit rates and cached tokens are estimated from its counters, which include unmeasured requests")
    notes.append(
        "cached, from elsewhere (host memory or a store), recomputed (read before) and evicted: tokens; used: most of "
        "the KV cache; context: tokens of an agent, mean; fit: agents for whose contexts there is room, by prediction"
    )
    kv = session_kv(summary)
    missed_c = summary.answer.missed_c if summary.answer else None
    notes += [kv_sentence(kv, missed_c)] if kv else []
    full = next((x.name for x in summary.levels if x.kv and (x.kv.preemptions or (x.kv.kv_use or 0.0) >= KV_FULL)), "")
    notes += [f"full, or with preemptions, from {full}"] if full else []
    ids = "load hit max_hit cached external recomputed evicted preempted kv_use kv_context kv_fits"
    return _table("KV cache", levels, f"{ids} recorded prompt_error", "; ".join(notes))


def _uses_cache(kv: KvFigures) -> bool:
    counts = (kv.cached_tokens, kv.external_tokens, kv.recomputed_tokens, kv.evicted_tokens, kv.preemptions)
    return any(counts) or (kv.kv_use or 0.0) >= KV_FULL


def time_table(levels: Sequence[Level]) -> Table:
    """Tabulate where the time goes; without rows if only the first token and the rest can be told apart."""
    shown = [x for x in levels if x.waterfall and len(x.waterfall.known_parts) > 2 and x.waterfall.total_s]
    if not shown:
        return Table("", (), ())
    last = shown[-1].waterfall
    assert last is not None
    name, most = max(last.known_parts, key=lambda part: part[1])
    share = f"{name} {'are' if name == 'tools' else 'is'} {percent(most / last.total_s)}"
    note = (
        f"mean time of a {last.per}, and shares of it: at {shown[-1].name}, {share}; "
        "prefill: of new prompt tokens, recomputed: of those that were read before; first token: until then, where the "
        "server does not report its parts; tools: recorded pauses; client: outside of the server"
    )
    ids = "load time_total " + " ".join(f"time_{field}" for field in WATERFALL_PARTS)
    return _table("Where the time goes", shown, ids, note)


def machine_table(levels: Sequence[Level]) -> Table:
    """Tabulate GPU figures and the parts of TTFT; without rows if neither was measured."""
    energies = [level.energy for level in levels if level.energy]
    splits = [level.ttft_split for level in levels if level.ttft_split]
    notes = []
    if any(energy.simulated for energy in energies):
        notes.append("GPU figures are SIMULATED")
    if any(energy.joules is not None for energy in energies):
        when = "steady" if any(level.headline_is_steady for level in levels) else "wall"
        notes.append(
            f"W and J from the energy counters over the time of {when}, GPUs only; W, J and GiB are sums over the GPUs"
        )
    if any(energy.all_gpus for energy in energies):
        notes.append("GPU figures are of all GPUs of the host in use: which of them the server uses is not known")
    if any(not split.estimated for split in splits):
        notes.append("TTFT: parts of the mean of all requests, also unmeasured ones, as the server reports them")
    if any(split.estimated for split in splits):
        notes.append("est.: estimated from C=1, where the server reported nothing in the time of a level")
    shown = [level for level in levels if level.energy or level.ttft_split]
    ids = "load gpu_w j_token tokens_j gpu_gib throttled ttft_mean ttft_queue ttft_prefill ttft_rest"
    return _table("Machine", shown, ids, "; ".join(notes))
