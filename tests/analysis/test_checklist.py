"""The publication checklist, and the facts of a session that it is based on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swarmtui.analysis.levels.flags import flag_outages
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.analysis.quality.checklist import checklist_sentence, publication_checklist
from swarmtui.analysis.quality.facts import (
    Turnaround,
    level_facts,
    merge_facts,
    other_clients,
    record_facts,
    session_facts,
)
from swarmtui.analysis.quality.judge import asked_figures, judge
from swarmtui.model.findings import Check, LevelState, SearchedLevel, SearchState
from swarmtui.model.journal import QualityEntry
from swarmtui.model.session import Event, Level
from swarmtui.model.telemetry import (
    DiscoveredServer,
    Energy,
    Gpu,
    HostUse,
    QualityFacts,
    QualityLine,
    ServerHistogram,
    ServerState,
    Telemetry,
)
from swarmtui.model.trace import ReplayedRequest
from tests.analysis.level_builders import level, session, spread
from tests.analysis.record_builders import BOOT_NS, MS, request, stage

GOOD = QualityFacts(
    lag_p99_s=0.0001, tpot_s=0.01, worker_cpu=0.2, other_requests=0.0, idle_before=True, engine_ratio=1.01,
    cache="cold", cached_share=0.0, preemptions=0.0, throttled=0.0, clock_spread=0.01,
    host=HostUse(pressure=0.02, steal=0.0),
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
        "warm_up", "complete", "errors", "cap_hits", "samples", "spread", "server_flags", "client_lag", "client_cpu",
        "host_pressure", "host_steal", "in_flight", "other_clients", "token_source",
        "decode_rate", "cold_cache", "preemptions", "throttling",
        "gpu_clocks", "journal",
    ]  # fmt: skip
    assert checklist_sentence(list(lines.values())) == "publication checklist: all 20 checks pass"


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("warm_up", {"warmup": 0}),
        ("complete", {"levels": [good_level(complete=False), good_level()]}),
        ("errors", {"levels": [good_level(errors=1)]}),
        ("samples", {"levels": [level(2, tps=100, tpot=0.01, runs=[100, 101, 99])]}),
        ("samples", {"levels": [good_level(out_tps_steady_hw=1.0), good_level(out_tps_steady_hw=4.0)]}),
        ("spread", {"levels": [level(2, tps=100, tpot=0.01, runs=[90, 110, 95, 105])]}),
        ("server_flags", {"server_flags": ""}),
        ("journal", {"damaged": 2}),
        ("token_source", {"levels": [good_level(token_source="chunks")]}),
        ("in_flight", {"levels": [good_level(c_held=1.8)]}),
        ("in_flight", {"levels": [good_level(), level(4, tps=100, runs=[100] * 4, c_held=3.0), good_level()]}),
        ("cold_cache", {"facts": {"cached_share": 0.05}}),
        ("throttling", {"facts": {"throttled": 0.2, "throttle": ("thermal",)}}),
        ("turnaround", {"facts": {"turnaround": 0.02}}),
        ("send_delay", {"facts": {"send_delay": 0.1}}),
        ("server_stall", {"facts": {"frozen": 1, "silence_s": 6.0}}),
        ("gpu_clocks", {"facts": {"clock_spread": 0.2}}),
        ("host_pressure", {"facts": {"host": HostUse(pressure=0.9, steal=0.0)}}),
        ("client_lag", {"facts": {"lag_p99_s": 0.002}}),
        ("client_cpu", {"facts": {"worker_cpu": 0.99}}),
        ("other_clients", {"facts": {"idle_before": False}}),
        ("other_clients", {"facts": {"other_requests": 3.0}}),
        ("preemptions", {"facts": {"preemptions": 2.0}}),
        ("decode_rate", {"facts": {"engine_ratio": 1.05}}),
        ("coalesced_chunks", {"facts": {"coalesced_chunks": 0.3}}),
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
    ],
)
def test_unmeasured_check_is_unknown_and_does_not_pass(code: str, fact: str) -> None:
    lines = checks(facts={fact: None})
    assert lines[code].state == "unknown"
    assert checklist_sentence(list(lines.values())) == f"publication checklist: unknown: {lines[code].name}"


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        ("other_clients", "other_requests"),
        ("cold_cache", "cached_share"),
        ("preemptions", "preemptions"),
        ("decode_rate", "engine_ratio"),
        ("throttling", "throttled"),
        ("gpu_clocks", "clock_spread"),
    ],
)
def test_what_server_or_machine_cannot_report_is_no_obstacle(code: str, fact: str) -> None:
    lines = checks(facts={fact: None})
    assert (lines[code].state, lines[code].value) == ("not applicable", "not reported")
    assert lines[code].sentence
    sentence = checklist_sentence(list(lines.values()))
    assert sentence == "publication checklist: all 19 checks pass, 1 not applicable"


def test_notes_pass() -> None:
    lines = checks(facts={"worker_cpu": 0.8, "several_servers": True})
    assert (lines["client_cpu"].state, lines["several_servers"].state) == ("ok", "ok")


def test_checks_without_a_measurement_are_unknown() -> None:
    states = {code: line.state for code, line in checks(levels=[]).items()}
    codes = ("errors", "cap_hits", "token_source", "samples", "spread", "in_flight")
    assert [states[code] for code in codes] == ["unknown"] * 6


def test_discovered_flags_are_known() -> None:
    servers = (DiscoveredServer(url="x", flags={"--max-num-seqs": "4"}), DiscoveredServer(url="y", flags={}))
    assert checks(server_flags="", servers=servers)["server_flags"].state == "ok"
    assert checks(server_flags="", servers=(DiscoveredServer(url="x"),))["server_flags"].state == "not ok"


@pytest.mark.parametrize(("busy_c", "state"), [(1, "ok"), (8, "doubtful"), (16, "doubtful")])
def test_busy_host_touches_a_number_of_agents_only_where_a_level_was_not_kept(busy_c: int, state: str) -> None:
    """One agent keeps the SLO in spite of a busy host; 8 keep it but for a little, and 16 miss it."""
    busy, calm = HostUse(pressure=0.5, waited=0.5, others=0.3), HostUse(pressure=0.0, waited=0.0, others=0.0)
    levels = [msgspec.structs.replace(level(c), host=busy if c == busy_c else calm) for c in (1, 8, 16)]
    states: tuple[tuple[int, LevelState], ...] = ((1, "kept"), (8, "unsure"), (16, "missed"))
    visited = (SearchedLevel(c=c, visits=1, n=16, good=16, state=state, room=0.02, close=True) for c, state in states)
    search = SearchState(goal="capacity", levels=tuple(visited))
    found = session_facts(session(), levels, [], (), QualityEntry(lines=(), facts=QualityFacts(host=busy)), search)
    (line,) = [line for line in judge(found) if line.code == "host_pressure"]
    assert line.state == state


def cache_line(spec: dict[str, Any], *prompts: tuple[int, int], turn: int = 0, **fields: Any) -> QualityLine:
    """Judge prompts of so many tokens, of which so many were in the cache."""
    records = [request(0, [1, 2], task=n, tokens_in=i, cached_tokens=c, **fields) for n, (i, c) in enumerate(prompts)]
    if turn:
        records.append(request(0, [1, 2], task=99, turn=turn, tokens_in=500, cached_tokens=480))
    facts = session_facts(session(workload_spec=spec), [good_level()], records, ())
    (line,) = [line for line in judge(facts) if line.code == "cold_cache"]
    return line


def test_a_declared_prefix_may_be_cached_and_what_follows_it_may_not() -> None:
    """A system prompt of 5,000 tokens before questions of 60 to 500."""
    shared = {"cache": "shared"}
    healthy = cache_line(shared, (5060, 4992), (5200, 4992), (5500, 4992))
    assert (healthy.state, healthy.value) == ("ok", "declared shared, 94 % cached")
    assert cache_line(shared, (5060, 4992), (5200, 5184), (5500, 5488)).state == "doubtful"
    assert cache_line(shared, (5060, 5056), (5060, 5056)).state == "doubtful"
    assert cache_line({"kind": "shared_prefix"}, (5060, 4992)).state == "ok"


def test_prompts_that_should_be_new_may_share_the_start_of_the_chat_template() -> None:
    cold = {"cache": "cold"}
    assert cache_line(cold, (120, 16), (180, 16)).state == "ok"
    assert cache_line(cold, (120, 112), (180, 176)).state == "doubtful"
    assert cache_line(cold, (40, 39)).state == "doubtful"


def test_later_turns_find_the_conversation_in_the_cache() -> None:
    assert cache_line({"cache": "cold"}, (120, 0), (180, 0), turn=1).state == "ok"


def test_a_trace_may_hit_what_its_play_has_sent_before() -> None:
    sent = ReplayedRequest(play=1, session="s", turn=1, input_tokens=5000, reusable_tokens=4000)
    trace = {"kind": "trace"}
    assert cache_line(trace, (5100, 4064), replayed=sent).state == "ok"
    assert cache_line(trace, (5100, 5088), replayed=sent).state == "doubtful"


def test_declared_warm_cache_passes() -> None:
    line = checks(facts={"cache": "warm", "cached_share": 0.9})["cold_cache"]
    assert (line.state, line.value) == ("ok", "declared warm, 90 % cached")


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
    records = [request(100, [150, 200, 250, 400], finish_reason="stop", engine_decode_tps=12.24, cached_tokens=6)]
    telemetry = [
        sample(0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        sample(200, running=1.0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        sample(350, running=1.0, finished=10.0, preemptions=2.0, cache_hits=5.0),
        sample(500, finished=13.0, preemptions=2.0, cache_hits=5.0),
    ]
    levels = [good_level(energy=Energy(seconds=1.0, throttled=0.0))]
    facts = session_facts(session(), levels, records, telemetry)
    assert facts.idle_before is True
    assert facts.other_requests == 2.0
    assert facts.preemptions == 1.0
    assert facts.cached_share == pytest.approx(0.1), "the answers report it, so that counters are not needed"
    assert (facts.throttled, facts.throttle) == (0.0, ())
    assert facts.clock_spread == pytest.approx(100 / 1900)
    assert facts.engine_ratio == pytest.approx(12.24 / 12.0)
    assert (facts.c, facts.c_held, facts.token_sources, facts.cache) == (2, 2.0, ("usage",), "cold")
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
    records = [request(0, [10, 20, 30, 40])]
    facts = session_facts(session(), [], records, [], QualityEntry(lines=(), facts=live))
    assert (facts.lag_p99_s, facts.worker_cpu, facts.clock_steps, facts.restarted) == (0.001, 0.4, 1, True)
    assert facts.tpot_s == pytest.approx(0.01), "the journal has all requests"


def test_own_unmeasured_and_cancelled_requests_are_not_other_clients() -> None:
    """The server counts six requests: pre-roll, two measured ones, a cancelled filler, and two of another client."""
    sent = {
        "preroll": request(100, [150], phase="preroll", finish_reason="stop"),
        "one": request(200, [250], finish_reason="stop"),
        "two": request(300, [350], finish_reason="stop"),
        "filler": request(360, [370], phase="filler", error="cancelled"),
    }
    telemetry = [sample(0, finished=10.0), sample(500, finished=16.0)]
    facts = session_facts(session(), [good_level()], list(sent.values()), telemetry)
    assert (facts.other_requests, facts.own_requests) == (2.0, 4)
    assert session_facts(session(), [], list(sent.values()), telemetry[:1]).other_requests is None
    # Four may be ours, or three of ours and one of another client: a server need not count what was cancelled.
    for finished, others in ((13.0, 0.0), (14.0, None), (15.0, 1.0)):
        counted = [sample(0, finished=10.0), sample(500, finished=finished)]
        assert session_facts(session(), [], list(sent.values()), counted).other_requests == others


def test_turnaround_is_the_time_between_two_requests_of_a_stream() -> None:
    found = Turnaround()
    assert found.share is None
    found.add(request(0, [20, 30], phase="preroll"))
    found.add(request(50, [60, 100], phase="preroll"))
    assert found.share is None, "nothing is measured yet"
    found.add(request(102, [150, 200]))
    found.add(request(0, [100, 200], agent=1))
    assert found.share == pytest.approx(2 / 298)
    found.add(request(900, [910], stage=2))
    assert found.share == pytest.approx(2 / 308), "another stage"
    found.add(request(920, [], stage=2, error="http_500", t_done_ns=BOOT_NS + 925 * MS, tokens=0))
    found.add(request(1500, [1510], stage=2))
    assert found.share == pytest.approx((2 + 10) / (308 + 5 + 10)), "an agent waits after an error"


def histogram(count: float, seconds: float) -> ServerHistogram:
    return ServerHistogram(count=count, sum=seconds)


@pytest.mark.parametrize(("engine_s", "expected"), [(0.010, 1.0), (0.0125, 0.8)])
def test_engine_decode_rate_from_its_histogram(engine_s: float, expected: float) -> None:
    """The client sees a token every 10 ms, and one gap more or less is allowed for."""
    records = [request(at, range(at + 10, at + 120, 10), stage=1) for at in range(0, 1200, 120)]
    telemetry = [sample(at, itl=histogram(0.1 * at, 0.1 * at * engine_s)) for at in (-500, 1, 600, 1190, 1900)]
    facts = session_facts(session(), [], records, telemetry)
    assert facts.engine_ratio == pytest.approx(expected, abs=0.01)
    drafted = [
        sample(at, itl=histogram(0.1 * at, 0.1 * at * engine_s), drafts=float(at)) for at in (-500, 1, 600, 1190, 1900)
    ]
    assert session_facts(session(), [], records, drafted).engine_ratio is None, "a step gives several tokens"
    assert session_facts(session(), [], records, telemetry[:2]).engine_ratio is None


def test_a_single_gap_that_only_the_engine_saw_is_no_other_rate() -> None:
    """The engine had its first token before it read another prompt for 300 ms, and sent it afterwards."""
    both = [request(at, (at + 310, *range(at + 610, at + 1000, 10)), stage=1) for at in (0, 1000)]
    held = request(2000, range(2600, 3000, 10), stage=1)
    engine = histogram(116, 3 * 0.300 + 113 * 0.010)
    telemetry = [sample(300, itl=histogram(0, 0.0)), sample(2985, itl=engine)]
    assert session_facts(session(), [], [*both, held], telemetry).engine_ratio == pytest.approx(1.0)
    twice = [request(0, range(610, 1000, 10), stage=1), request(1000, range(1610, 2000, 10), stage=1), held]
    ratio = session_facts(session(), [], twice, telemetry).engine_ratio
    assert ratio is not None and ratio < 0.9


def test_one_late_first_read_does_not_move_a_mean() -> None:
    late = msgspec.structs.replace(request(0, [100, 100, 110, 120]), first_coalesced=1)
    assert (late.first_error_s or 0.0) > 0.0
    assert record_facts([late, request(0, [100, 110])]).first_error == 0.0
    assert (record_facts([late, late, request(0, [100, 110])]).first_error or 0.0) > 0.01


def test_engine_decode_rate_counts_from_a_token_without_text() -> None:
    """The engine has its first token at 100 ms, and the client sees text from the second one on, after a prefill."""
    record = request(0, range(600, 701, 10), tokens=12)
    shown = msgspec.structs.replace(
        record, first_tokens=2, t_event_ns=BOOT_NS + 100 * MS, engine_decode_tps=11 / (0.700 - 0.100)
    )
    assert record_facts([shown]).engine_ratio == pytest.approx(1.0)
    late_role = msgspec.structs.replace(shown, first_tokens=1, engine_decode_tps=11 / 0.100)
    assert record_facts([late_role]).engine_ratio == pytest.approx(1.0), (
        "the first token has text: the role is no token"
    )


def test_engine_decode_rate_includes_answers_that_a_sample_cuts() -> None:
    """A token takes 20 ms until 400 ms, then 10 ms; both sides count those between the samples at 100 and 850 ms."""
    slow = request(0, range(20, 401, 20), stage=1)
    fast = [request(400, range(410, 801, 10), stage=1), request(800, range(810, 901, 10), stage=1)]
    telemetry = [sample(100, itl=histogram(4, 0.08)), sample(850, itl=histogram(62, 0.81))]
    facts = session_facts(session(), [], [slow, *fast], telemetry)
    assert facts.engine_ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("asked_ms", "counted"),
    [
        pytest.param(400, 1, id="in the middle of the long gap, of which the engine counts the whole"),
        pytest.param(690, 1, id="before its end, counted before it"),
        pytest.param(690, 51, id="before its end, counted after it"),
    ],
)
def test_engine_decode_rate_with_a_long_gap_at_a_sample(asked_ms: int, counted: int) -> None:
    """A token takes 10 ms, but the second 700 ms, for which the engine reads the prompt of another request."""
    records = [request(0, (10, *range(710, 1500, 10)), stage=1), request(1500, range(1510, 1700, 10), stage=1)]
    at_first = histogram(0, 0.0) if counted == 1 else histogram(1, 0.700)
    telemetry = [sample(asked_ms, itl=at_first), sample(1690, itl=histogram(97, 0.700 + 96 * 0.010))]
    assert session_facts(session(), [], records, telemetry).engine_ratio == pytest.approx(1.0, abs=0.02)


def test_engine_decode_rate_is_unknown_if_a_sample_was_late() -> None:
    """The server was asked at 100 ms, and answered when it had counted 60 of the 120 tokens that arrived since then."""
    records = [request(0, [10, *range(20, 601, 10), *range(605, 901, 5)], stage=1)]
    telemetry = [sample(100, itl=histogram(60, 0.6)), sample(900, itl=histogram(119, 0.9))]
    assert session_facts(session(), [], records, telemetry).engine_ratio is None


def test_clocks_may_differ_between_levels() -> None:
    """Clocks depend on the load, and are compared during a level."""
    records = [request(0, [290], stage=1), request(310, [590], stage=2)]
    telemetry = [sample(at) for at in (100, 200, 400, 500)]
    assert session_facts(session(), [], records, telemetry).clock_spread == 0.0


def test_throttling_is_that_of_the_worst_level() -> None:
    calm = good_level(energy=Energy(seconds=90.0, throttled=0.0))
    hot = good_level(energy=Energy(seconds=10.0, throttled=0.2, throttle=("thermal",)))
    facts = level_facts([calm, hot])
    assert (facts.throttled, facts.throttle) == (0.2, ("thermal",))


def test_a_level_without_an_answer_has_no_token_source() -> None:
    assert level_facts([good_level(ok=0, token_source=None)]).token_sources == ()
    assert level_facts([good_level(token_source=None)]).token_sources == ("not known",)


def test_send_delay_is_compared_with_ttft() -> None:
    late = good_level(ttft=0.1, rate=2.0, load="open", send_delay_s=spread(0.005))
    assert level_facts([late]).send_delay == pytest.approx(0.05)
    assert level_facts([good_level(ttft=0.1)]).send_delay is None


def test_level_is_flagged_in_which_the_server_restarted() -> None:
    stages = [stage(1, c=1), stage(2, c=2, t_ns=BOOT_NS + 1000 * MS), stage(3, c=4, t_ns=BOOT_NS + 2000 * MS)]
    events = [
        Event(t_ns=BOOT_NS + 1700 * MS, name="host_silent"),
        Event(t_ns=BOOT_NS + 2500 * MS, name="server_restarted"),
        Event(t_ns=BOOT_NS + 500 * MS, name="paused"),
    ]
    flagged = flag_outages([level(1), level(2), level(4)], stages, events)
    assert [[flag.code for flag in found.flags] for found in flagged] == [
        [],
        ["host_silent"],
        ["server_gone"],
    ]


def test_an_inexact_figure_fails_also_where_the_answer_does_not_depend_on_it() -> None:
    found = judge(QualityFacts(token_sources=("chunks",)), asked_figures(parse_slo("ttft_p90=2s"), searched=True))
    assert [line.state for line in found] == ["note"]
    listed = publication_checklist(session(), [good_level()], found, warmup_requests=1)
    assert [check.state for check in listed if check.code == "token_source"] == ["not ok"]
