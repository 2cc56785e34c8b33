"""What a header that changes with every request does to a prefix cache is said in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.experiments.ab import cache_use, header_effect
from swarmtui.model.journal import TelemetryEntry
from swarmtui.model.telemetry import ServerState, Telemetry
from swarmtui.model.tuning import CacheUse
from swarmtui.prompts.generator import TaskGenerator, header_messages
from swarmtui.prompts.library import find_workload
from tests.analysis.level_builders import level
from tests.sessions.session_builders import T0, full_session, write_session


def use(cached: float, prompt: float = 16_000.0) -> CacheUse:
    return CacheUse(prompt_tokens=prompt, cached_tokens=cached, source="usage")


@pytest.mark.parametrize(
    ("without", "with_header", "code", "says"),
    [
        (15_800, 100, "lost", "15,800 (99 %) without the header and 100 (1 %) with it; 15,700 tokens of shared prefix"),
        (15_800, 12_800, "partly", "3,000 tokens of shared prefix are computed again"),
        (15_800, 15_700, "survives", "the prefix cache survives a billing line"),
        (0, 0, "no_cache", "no prefix cache: of 16,000 prompt tokens per request the cache served 0 (0 %)"),
        (None, 100, "unknown", "the server reports no cache hits"),
    ],
)
def test_effect_has_a_code_and_a_cause(without: float | None, with_header: float, code: str, says: str) -> None:
    a = None if without is None else use(without)
    found = header_effect("billing", [use(15_800) if a else None, a] if code == "unknown" else [a], [use(with_header)])
    assert found.code == code
    assert says in found.sentence


def test_header_changes_with_every_request_and_turn() -> None:
    seen = {header_messages("both", 1, "", number, turn) for number in range(50) for turn in range(4)}
    assert len(seen) == 200
    assert header_messages("both", 1, "", 7, 2) == header_messages("both", 1, "", 7, 2)
    billing, date = header_messages("both", 1, "", 7, 2)
    assert header_messages("billing", 1, "", 7, 2) == (billing,)
    assert header_messages("date", 1, "", 7, 2) == (date,)
    other, later = header_messages("both", 1, "", 7, 3)
    assert other.content.split(" cch=")[0] == billing.content.split(" cch=")[0], "as clients do within a conversation"
    assert other != billing and later != date


def test_tasks_have_a_header_for_each_turn() -> None:
    found = find_workload("coding-agent")
    plain, headed = (TaskGenerator(found, seed=1, calibration=None, agent_header=kind) for kind in (None, "date"))
    a, b = plain.task(3, 1, 0), headed.task(3, 1, 0)
    assert (a.headers, len(b.headers)) == ((), 1 + len(b.followups))
    assert a.messages == b.messages


@pytest.mark.parametrize(("queries", "hits", "cached"), [(0.0, 0.0, 0.0), (1000.0, 750.0, 75.0), (None, None, None)])
def test_counters_of_the_server_replace_missing_usage(
    tmp_path: Path, queries: float | None, hits: float | None, cached: float | None
) -> None:
    """A server without a cache counts no queries, which is no reason to call its cache unknown."""

    def sample(t_ns: int, share: float) -> TelemetryEntry:
        counted = [None if value is None else value * share for value in (queries, hits)]
        state = ServerState(engine="vLLM", url="u", cache_queries=counted[0], cache_hits=counted[1])
        return TelemetryEntry(telemetry=Telemetry(t_ns=t_ns, servers=(state,)))

    entries = full_session()
    write_session(tmp_path / "20261115-014455-3f9a", [*entries[:1], sample(T0, 0.0), *entries[1:], sample(T0 + 1, 1.0)])
    found = cache_use(tmp_path, "20261115-014455-3f9a", level(4, cached_tokens=None))
    assert (found and found.cached_tokens) == cached
