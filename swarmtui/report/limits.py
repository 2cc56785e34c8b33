"""What the hardware allows: the facts behind it, and a table by level."""

from __future__ import annotations

from swarmtui.model.speed_of_light import Binding, GpuFigures, LevelLimit, ModelShape, SpeedOfLight
from swarmtui.numbers import count, rate, seconds, short, short_percent
from swarmtui.report.table import Block, Column, Facts, Sentence, Table, tabulate
from swarmtui.text import count_noun

# What binds, where its code with blanks does not say it.
_BINDINGS: dict[Binding, str] = {
    "kv_capacity": "KV cache", "client": "client or gateway", "power": "power or heat",
    "server_cpu": "server's CPU side",
}  # fmt: skip
_SOURCES = {
    "safetensors": "read from the headers of its files",
    "gguf": "read from the header of its file",
    "config": "computed from config.json",
    "tags": "as the tags of the session say",
}


def limits_blocks(found: SpeedOfLight) -> list[Block]:
    """Show the limits of a model that nothing was sent to."""
    note = "limit: no server exceeds it; expected: independent experts; both for decoding alone, without prompts"
    return [
        Facts(limit_facts(found)),
        limit_table(found, "", note),
        *(Sentence(fact.text, "note") for fact in found.missing),
    ]


def limit_facts(found: SpeedOfLight) -> tuple[tuple[str, str], ...]:
    model, gpu, serving = found.model, found.gpu, found.serving
    rows = []
    if model is not None:
        rows.append(("Model", _model_text(model)))
    if gpu is not None:
        rows.append(("GPU", _gpu_text(gpu, model)))
    if model is not None and gpu is not None:
        rows.append(("Served", _served_text(found)))
    if found.kv_tokens is not None and serving.context:
        guess = " (prediction)" if found.kv_predicted else ""
        agents = int(found.kv_tokens / serving.context)
        fit = f"{agents:,} context{' fits' if agents == 1 else 's fit'}"
        rows.append(("KV cache", f"{count(found.kv_tokens)} tokens: {fit}{guess}"))
    if (steps := found.fit) is not None:
        overhead = f"{seconds(steps.overhead_s, 2)} + " if steps.overhead_s else ""
        off = f"{count_noun(steps.levels, 'level')}, off by {short_percent(steps.error, 2)} at most"
        rows.append(("Fit", f"a step takes {overhead}the limit / {steps.efficiency:.2f} ({off})"))
    return tuple(rows)


def limit_table(found: SpeedOfLight, title: str = "What the hardware allows", note: str = "") -> Table:
    """Tabulate the limit of each level, and what was measured of it; a MoE also has an expected one."""
    experts = found.model is not None and found.model.experts
    columns: list[Column[LevelLimit]] = [
        Column("load", "agents", lambda level: level.c),
        Column("bytes", "GB/step", lambda level: level.bytes_per_step, lambda value: short(value / 1e9)),
        Column("limit", "limit tok/s", lambda level: level.limit_tps, rate),
        Column("expected", "expected", lambda level: level.expected_tps if experts else None, rate),
        Column("fitted", "fitted", lambda level: level.fitted_tps, rate),
        Column("each", "each", lambda level: _each(level, found), rate),
        Column("step", "step", lambda level: level.step_s, seconds),
        Column("share", "of limit", lambda level: level.share, short_percent),
        Column("binds", "binds", lambda of: _BINDINGS.get(of.binds, of.binds.replace("_", " ")), right=False),
        Column("because", "", lambda level: level.because, right=False, least=20),
    ]
    table = tabulate(title, found.levels, columns, note, drop=("fitted", "each", "expected"))
    return table.without_missing()


def _each(level: LevelLimit, found: SpeedOfLight) -> float | None:
    """What one agent gets while it has a slot."""
    slots = found.serving.slots
    expected = level.expected_tps
    return None if expected is None else expected / (level.c if slots is None else min(level.c, slots))


def _model_text(model: ModelShape) -> str:
    every = model.dense_parameters + model.experts * model.expert_parameters
    active = short(model.active_parameters / 1e9)
    parameters = f"{active} of {short(every / 1e9)} B parameters per token" if every else ""
    experts = f"{model.experts_used} of {model.experts} experts" if model.experts else ""
    parts = (
        model.architecture,
        model.quantisation,
        f"{short(model.total_bytes / 1e9)} GB",
        ", ".join(filter(None, (parameters, experts))),
        _SOURCES[model.source],
    )
    return " · ".join(filter(None, parts))


def _gpu_text(gpu: GpuFigures, model: ModelShape | None) -> str:
    bandwidth = "" if gpu.bandwidth is None else f"{rate(gpu.bandwidth / 1e9)} GB/s ({gpu.bandwidth_from})"
    bits = model.compute_bits if model is not None else 16
    peak = gpu.peak(bits)
    operations = "" if peak is None else f"{rate(peak / 1e12)} TFLOP/s with {bits} bits ({gpu.peak_from})"
    return " · ".join(filter(None, (gpu.name, bandwidth, operations)))


def _served_text(found: SpeedOfLight) -> str:
    from swarmtui.analysis.speed_of_light.step import kv_bytes

    model, serving = found.model, found.serving
    assert model is not None
    each = kv_bytes(model, serving, serving.context) / 1e6
    parts = (
        f"{serving.tensor_parallel} GPUs share each replica" if serving.tensor_parallel > 1 else "",
        count_noun(serving.replicas, "replica") if serving.replicas > 1 else "",
        count_noun(serving.slots, "slot") if serving.slots is not None else "",
        f"{serving.draft_tokens} tokens drafted per step" if serving.draft_tokens else "",
        f"contexts of {serving.context:,.0f} tokens, {short(each)} MB of KV cache each" if serving.context else "",
    )
    return " · ".join(filter(None, parts))
