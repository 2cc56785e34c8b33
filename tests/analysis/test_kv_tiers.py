"""Where prompt tokens came from by level, and when contexts no longer fit in the KV cache: predicted and seen."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.model.record import EngineTimings, Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer, KvFigures, ServerState, Telemetry
from swarmtui.report.figure_tables import kv_table
from swarmtui.telemetry.metrics import parse_prometheus
from tests.analysis.level_builders import level, summary
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage

SERVER = DiscoveredServer(url="u", kv_tokens=1000, block_size=10)


def talk(task: int, at: float, cached: tuple[int | None, int | None]) -> list[Record]:
    """A conversation of two turns: prompts of 40 and 100 tokens, answers of 20."""
    turns = zip((0, 1), (40, 100), cached, strict=True)
    return [
        request(
            at + 500 * turn, [at + 500 * turn + 100, at + 500 * turn + 200], task=task, turn=turn, turns=2,
            tokens_in=prompt, tokens=20, cached_tokens=hit,
        )
        for turn, prompt, hit in turns
    ]  # fmt: skip


def sample(at: float, **fields: Any) -> Telemetry:
    return Telemetry(t_ns=BOOT_NS + round(at * MS), servers=(ServerState(engine="vLLM", url="u", **fields),))


def measured(records: list[Record], samples: tuple[Telemetry, ...] = ()) -> Level:
    stages, ends = [stage(1, 1)], [end(1, at=10_000)]
    (level,) = add_machine_figures(level_figures(records, stages, ends), stages, ends, samples, records, [SERVER])
    return level


def test_tokens_that_the_cache_has_lost_are_recomputed() -> None:
    kept, lost = talk(1, 0, (0, 60)), talk(2, 2000, (0, 10))
    found = measured([*kept, *lost]).kv
    # 60 tokens of the second turn were in the first one, and 50 of them are read again.
    assert found == KvFigures(cached_tokens=70, recomputed_tokens=50, context_tokens=90.0, fits=1000 / 90.0)


def test_nothing_is_said_of_a_cache_that_nobody_reports() -> None:
    assert measured(talk(1, 0, (None, None))).kv is None


def test_answers_tell_what_came_from_elsewhere_and_what_was_evicted() -> None:
    engine = EngineTimings(local_cached_tokens=20, external_cached_tokens=10, evicted_blocks=3)
    records = [msgspec.structs.replace(record, engine=engine) for record in talk(1, 0, (30, 30))]
    found = measured(records).kv
    assert found is not None and (found.external_tokens, found.evicted_tokens) == (20, 60)
    assert found.recomputed_tokens == 30


def test_counters_of_the_server_stand_in_for_answers_that_tell_nothing() -> None:
    counted = {"prompt_tokens": 280.0, "cache_queries": 280.0, "cache_hits": 70.0, "external_tokens": 28.0}
    before = dict.fromkeys(counted, 0.0) | {"evicted_tokens": 5.0, "preemptions": 1.0, "kv_use": 0.1}
    after = counted | {"evicted_tokens": 105.0, "preemptions": 4.0, "kv_use": 0.97}
    found = measured(talk(1, 0, (None, None)), (sample(-1, **before), sample(9000, **after))).kv
    assert found is not None
    # A quarter of what the server counted was cached, and a tenth came from elsewhere.
    assert (found.cached_tokens, found.external_tokens, found.recomputed_tokens) == (35, 14, None)
    assert (found.evicted_tokens, found.preemptions, found.kv_use) == (100, 3.0, 0.97)


def test_servers_count_what_they_load_from_host_memory() -> None:
    vllm = parse_prometheus('vllm:external_prefix_cache_hits_total{engine="0"} 640\n')
    sglang = parse_prometheus("sglang:load_back_tokens_total 320\nsglang:evicted_tokens_total 500\n")
    assert vllm is not None and vllm.external_tokens == 640
    assert sglang is not None and (sglang.external_tokens, sglang.evicted_tokens) == (320, 500)


def test_table_says_what_was_predicted_and_what_was_seen() -> None:
    small = [
        msgspec.structs.replace(level(c), tokens_in=1000, cached_tokens=cached, ok=10, kv=kv)
        for c, cached, kv in (
            (4, 600, KvFigures(cached_tokens=600, recomputed_tokens=0, context_tokens=100.0, fits=10.0)),
            (12, 100, KvFigures(cached_tokens=100, recomputed_tokens=500, preemptions=2.0, context_tokens=100.0)),
        )
    ]
    table = kv_table(msgspec.structs.replace(summary(small), servers=(SERVER,)))
    assert [[cell.text for cell in row][:4] for row in table.rows] == [
        ["4", "60 %", "600", "0"],
        ["12", "10 %", "100", "500"],
    ]
    assert "room for 10 contexts of about 100 tokens; hit rate 0.60 at C=4, 0.10 at C=12" in table.note
    assert table.note.endswith("full, or with preemptions, from C=12")
    assert not kv_table(summary([level(1)])).rows
