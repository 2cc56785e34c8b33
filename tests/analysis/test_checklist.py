"""The publication checklist, and the facts of a session that it is based on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swarmtui.analysis.quality.checklist import checklist_sentence, publication_checklist
from swarmtui.analysis.quality.facts import level_facts, merge_facts, other_clients, session_facts
from swarmtui.analysis.quality.judge import judge
from swarmtui.model.findings import Check
from swarmtui.model.session import Level, QualityEntry
from swarmtui.model.telemetry import DiscoveredServer, Gpu, QualityFacts, ServerState, Telemetry
from tests.analysis.level_builders import level, session
from tests.analysis.record_builders import BOOT_NS, MS, request

GOOD = QualityFacts(
    lag_p99_s=0.0001, tpot_s=0.01, worker_cpu=0.2, other_requests=0.0, idle_before=True, engine_ratio=1.01,
    cold_expected=True, cached_share=0.0, preemptions=0.0, throttled=0.0, clock_spread=0.01,
)  # fmt: skip


def good_level(**fields: Any) -> Level:
    return level(2, tps=100, tpot=0.01, runs=[100, 101, 99, 100], **fields)


def checks(
    *,
    levels: list[Level] | None = None,
    facts: dict[str, Any] | None = None,
    warmup: int = 4,
    damaged: int = 0,
    servers: tuple[DiscoveredServer, ...] = (),
    **fields: Any,
) -> dict[str, Check]:
    """Build the checklist of a good session, with `facts` in place of good ones."""
    levels = [good_level()] if levels is None else levels
    known = msgspec.structs.replace(merge_facts(GOOD, level_facts(levels)), **(facts or {}))
    lines = publication_checklist(
        session(**({"server_flags": "--max-num-seqs 4"} | fields)),
        levels,
        judge(known),
        warmup_requests=warmup,
        damaged_lines=damaged,
        servers=servers,
    )
    return {line.code: line for line in lines}


def test_all_checks_pass_for_a_good_session() -> None:
    lines = checks()
    assert {line.state for line in lines.values()} == {"ok"}
    assert list(lines) == [
        "warm_up", "errors", "cap_hits", "samples", "spread", "server_flags", "client_lag", "client_cpu", "in_flight",
        "other_clients", "token_source", "decode_rate", "cold_cache", "preemptions", "throttling", "gpu_clocks",
        "journal",
    ]  # fmt: skip
    assert checklist_sentence(list(lines.values())) == "publication checklist: all 17 checks pass"


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("warm_up", {"warmup": 0}),
        ("errors", {"levels": [good_level(errors=1)]}),
        ("samples", {"levels": [level(2, tps=100, tpot=0.01, runs=[100, 101, 99])]}),
        ("spread", {"levels": [level(2, tps=100, tpot=0.01, runs=[90, 110, 95, 105])]}),
        ("server_flags", {"server_flags": ""}),
        ("journal", {"damaged": 2}),
        ("token_source", {"levels": [good_level(token_source="chunks")]}),
        ("in_flight", {"levels": [good_level(c_achieved=1.8)]}),
        ("in_flight", {"levels": [good_level(), level(4, tps=100, runs=[100] * 4, c_achieved=3.0), good_level()]}),
        ("cold_cache", {"facts": {"cached_share": 0.05}}),
        ("throttling", {"facts": {"throttled": 0.2, "throttle": ("thermal",)}}),
        ("gpu_clocks", {"facts": {"clock_spread": 0.2}}),
        ("client_lag", {"facts": {"lag_p99_s": 0.002}}),
        ("client_cpu", {"facts": {"worker_cpu": 0.9}}),
        ("other_clients", {"facts": {"idle_before": False}}),
        ("other_clients", {"facts": {"other_requests": 3.0}}),
        ("preemptions", {"facts": {"preemptions": 2.0}}),
        ("decode_rate", {"facts": {"engine_ratio": 1.05}}),
        ("coalesced_chunks", {"facts": {"coalesced_chunks": 0.1}}),
        ("client_clock", {"facts": {"clock_steps": 1}}),
        ("server_restart", {"facts": {"restarted": True}}),
    ],
)
def test_each_check_can_fail(code: str, given: dict[str, Any]) -> None:
    lines = checks(**given)
    line = lines[code]
    assert line.state == "not ok"
    assert line.name and line.value and line.limit and line.sentence
    assert [other.code for other in lines.values() if other.state != "ok"] == [code]
    assert checklist_sentence(list(lines.values())) == f"publication checklist: failed: {line.name}"


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        ("client_lag", "lag_p99_s"),
        ("client_cpu", "worker_cpu"),
        ("other_clients", "other_requests"),
        ("cold_cache", "cached_share"),
        ("preemptions", "preemptions"),
        ("decode_rate", "engine_ratio"),
        ("throttling", "throttled"),
        ("gpu_clocks", "clock_spread"),
    ],
)
def test_unmeasured_check_is_unknown_and_does_not_pass(code: str, fact: str) -> None:
    lines = checks(facts={fact: None})
    assert lines[code].state == "unknown"
    assert checklist_sentence(list(lines.values())) == f"publication checklist: unknown: {lines[code].name}"


def test_checks_without_a_measurement_are_unknown() -> None:
    states = {code: line.state for code, line in checks(levels=[]).items()}
    codes = ("errors", "cap_hits", "token_source", "samples", "spread", "in_flight")
    assert [states[code] for code in codes] == ["unknown"] * 6


def test_discovered_flags_are_known() -> None:
    servers = (DiscoveredServer(url="x", flags={"--max-num-seqs": "4"}), DiscoveredServer(url="y", flags={}))
    assert checks(server_flags="", servers=servers)["server_flags"].state == "ok"
    assert checks(server_flags="", servers=(DiscoveredServer(url="x"),))["server_flags"].state == "not ok"


def test_declared_warm_cache_passes() -> None:
    line = checks(facts={"cold_expected": False, "cached_share": 0.9})["cold_cache"]
    assert (line.state, line.value) == ("ok", "declared warm")


def test_cap_hits_pass_because_raw_and_clean_are_shown() -> None:
    line = checks(levels=[good_level(cap_hits=3)])["cap_hits"]
    assert (line.state, line.value) == ("ok", "3 of 16")


def test_other_clients_are_those_in_every_sample() -> None:
    assert other_clients([(8, 8), (8, 12), (8, 9)]) == 0.0, "a request of ours began between two readings"
    assert other_clients([(8, 11), (8, 10), (4, 7)]) == 2.0
    assert other_clients([(8, 3)]) == 0.0
    assert other_clients([]) is None


def sample(at: float, **server: Any) -> Telemetry:
    gpu = Gpu(uuid="g", index=0, name="x", throttle=(), sm_mhz=1900 if at < 300 else 1800, utilisation=0.9)
    defaults: dict[str, Any] = {"engine": "vLLM", "running": 0.0, "waiting": 0.0}
    state = ServerState(**(defaults | server))
    return Telemetry(t_ns=BOOT_NS + round(at * MS), gpus=(gpu,), servers=(state,))


def test_session_facts_from_records_and_telemetry() -> None:
    records = [request(100, [150, 200, 250, 400], finish_reason="stop", engine_decode_tps=12.24, cached_tokens=1)]
    telemetry = [
        sample(0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        sample(200, running=1.0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        sample(350, running=1.0, finished=10.0, preemptions=2.0, cache_hits=5.0),
        sample(500, finished=13.0, preemptions=2.0, cache_hits=5.0),
    ]
    facts = session_facts(session(), [good_level()], records, telemetry)
    assert facts.idle_before is True
    assert facts.other_requests == 2.0
    assert facts.preemptions == 1.0
    assert facts.cached_share == pytest.approx(0.1), "the answers report it, so that counters are not needed"
    assert (facts.throttled, facts.throttle) == (0.0, ())
    assert facts.clock_spread == pytest.approx(100 / 1900)
    assert facts.engine_ratio == pytest.approx(12.24 / 12.0)
    assert (facts.c, facts.c_achieved, facts.token_sources, facts.cold_expected) == (2, 2.0, ("usage",), True)
    assert (facts.lag_p99_s, facts.worker_cpu) == (None, None)


def test_cached_share_from_counters() -> None:
    def facts(hits: float, **queries: float) -> QualityFacts:
        telemetry = [
            sample(0, cache_hits=5.0, **dict.fromkeys(queries, 0.0)),
            sample(500, cache_hits=5.0 + hits, **queries),
        ]
        return session_facts(session(), [good_level()], [request(100, [200])], telemetry)

    assert facts(0.0).cached_share == 0.0
    assert facts(30.0, cache_queries=300.0).cached_share == pytest.approx(0.1)
    assert facts(80.0).cached_share == pytest.approx(80 / 1600), "of the prompt tokens of the levels"


def test_reset_counter_makes_growth_unknown() -> None:
    telemetry = [sample(0, preemptions=5.0), sample(250, preemptions=0.0), sample(500, preemptions=7.0)]
    assert session_facts(session(), [], [request(100, [200])], telemetry).preemptions is None


def test_facts_of_the_session_process_complete_those_of_the_journal() -> None:
    live = QualityFacts(lag_p99_s=0.001, worker_cpu=0.4, clock_steps=1, tpot_s=9.0, restarted=True, in_flight=4.0)
    records = [request(0, [10, 20, 30])]
    facts = session_facts(session(), [], records, [], QualityEntry(lines=(), facts=live))
    assert (facts.lag_p99_s, facts.worker_cpu, facts.clock_steps, facts.restarted) == (0.001, 0.4, 1, True)
    assert facts.tpot_s == pytest.approx(0.01), "the journal has all requests"
    older = session_facts(session(), [], records, [], QualityEntry(lines=(), lag_p99_s=0.002, cpu=0.5))
    assert (older.lag_p99_s, older.worker_cpu, older.restarted) == (0.002, 0.5, False)
