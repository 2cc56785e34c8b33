"""The rules of measurement quality: limits, codes and texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.analysis.quality.doubts import find_doubts, temper, with_host_use
from swarmtui.analysis.quality.facts import usage_facts
from swarmtui.analysis.quality.judge import RULES, asked_figures, judge
from swarmtui.model.record import Record
from swarmtui.model.telemetry import HostUse, Program, QualityFacts, QualityLine
from tests.analysis.level_builders import level

GOOD = QualityFacts(
    lag_p99_s=0.0005,
    tpot_s=0.02,
    kernel_stamps=True,
    worker_cpu=0.3,
    load="closed",
    c=8,
    c_held=7.9,
    turnaround=0.002,
    send_delay=0.001,
    in_flight=8,
    other_clients=0.0,
    other_requests=0.0,
    own_requests=40,
    idle_before=True,
    token_sources=("usage",),
    client_tokens=4000,
    server_tokens=4000,
    engine_ratio=1.01,
    cache="cold",
    cached_share=0.0,
    preemptions=0,
    throttled=0.0,
    clock_spread=0.01,
    clock_steps=0,
    clock_bound_s=0.0001,
    coalesced_chunks=0.001,
    miscounted=0.0,
    first_coalesced=0.0,
    first_error=0.0,
    host=HostUse(pressure=0.03, steal=0.0),
)


def line(code: str, **facts: Any) -> QualityLine:
    (found,) = [line for line in judge(QualityFacts(**facts)) if line.code == code]
    return found


def test_good_facts_give_one_ok_line_per_rule() -> None:
    lines = judge(GOOD)
    assert [line.state for line in lines] == ["ok"] * 19
    assert all(line.value and line.sentence and line.name for line in lines)
    events = {"server_restart", "server_stall", "several_servers", "connections"}
    assert {line.code for line in lines} == {rule.code for rule in RULES} - events


def test_unknown_facts_give_no_line() -> None:
    assert judge(QualityFacts()) == ()


@pytest.mark.parametrize(
    ("code", "facts", "state"),
    [
        ("client_lag", {"lag_p99_s": 0.002, "tpot_s": 0.02}, "ok"),
        ("client_lag", {"lag_p99_s": 0.0021, "tpot_s": 0.02}, "doubtful"),
        ("client_lag", {"lag_p99_s": 0.03, "tpot_s": 0.02, "kernel_stamps": False}, "doubtful"),
        ("client_lag", {"lag_p99_s": 0.03, "tpot_s": 0.02, "kernel_stamps": True}, "ok"),
        ("connections", {"closed_connections": True}, "note"),
        ("turnaround", {"turnaround": 0.01}, "ok"),
        ("turnaround", {"turnaround": 0.011}, "doubtful"),
        ("send_delay", {"send_delay": 0.02}, "ok"),
        ("send_delay", {"send_delay": 0.03}, "doubtful"),
        ("client_cpu", {"worker_cpu": 0.7}, "ok"),
        ("client_cpu", {"worker_cpu": 0.8}, "note"),
        ("client_cpu", {"worker_cpu": 1.0}, "doubtful"),
        ("in_flight", {"c_held": 9.51, "c": 10}, "ok"),
        ("in_flight", {"c_held": 9.49, "c": 10}, "doubtful"),
        ("in_flight", {"c_held": 7.0, "c": 8, "load": "closed"}, "doubtful"),
        ("in_flight", {"c_held": 4.0, "c": 8, "load": "barrier"}, "ok"),
        ("other_clients", {"other_clients": 0.0, "in_flight": 1}, "ok"),
        ("other_clients", {"other_clients": 1.0, "in_flight": 8}, "doubtful"),
        ("other_clients", {"other_requests": 3.0}, "doubtful"),
        ("other_clients", {"other_requests": 3.0, "own_requests": 100}, "doubtful"),
        ("other_clients", {"other_requests": 1.0, "own_requests": 100}, "note"),
        ("other_clients", {"idle_before": True, "client_tokens": 800, "server_tokens": 1000}, "doubtful"),
        (
            "token_counts",
            {"client_tokens": 990.0, "server_tokens": 1010.0, "uncertain_tokens": 32.0},
            "ok",
        ),
        (
            "token_counts",
            {"client_tokens": 800.0, "server_tokens": 1010.0, "uncertain_tokens": 32.0},
            "doubtful",
        ),
        ("other_clients", {"idle_before": False}, "doubtful"),
        ("other_clients", {"other_clients": 0.0, "in_flight": 8, "idle_before": False}, "doubtful"),
        ("token_source", {"token_sources": ("engine",)}, "ok"),
        ("token_source", {"token_sources": ("usage", "usage_chunks")}, "ok"),
        ("token_source", {"token_sources": ("chunks",)}, "doubtful"),
        ("token_source", {"token_sources": ("tokenize", "usage")}, "doubtful"),
        ("token_counts", {"client_tokens": 1000, "server_tokens": 1000}, "ok"),
        ("token_counts", {"client_tokens": 990, "server_tokens": 1000}, "ok"),
        ("token_counts", {"client_tokens": 980, "server_tokens": 1000}, "doubtful"),
        ("token_counts", {"client_tokens": 1020, "server_tokens": 1000, "uncertain_tokens": 99}, "doubtful"),
        ("token_counts", {"client_tokens": 1020, "server_tokens": 1000, "uncounted_tokens": 20}, "ok"),
        ("token_counts", {"client_tokens": 1020, "server_tokens": 1000, "uncounted_tokens": 19}, "doubtful"),
        ("token_counts", {"miscounted": 0.0}, "ok"),
        ("token_counts", {"miscounted": 0.02}, "note"),
        ("token_counts", {"client_tokens": 1000, "server_tokens": 1000, "miscounted": 0.03}, "doubtful"),
        ("first_reads", {"first_coalesced": 0.05, "first_error": 0.02}, "ok"),
        ("first_reads", {"first_coalesced": 0.06, "first_error": 0.02}, "doubtful"),
        ("first_reads", {"first_coalesced": 0.06, "first_error": 0.01}, "note"),
        ("host_pressure", {"host": HostUse(pressure=0.15)}, "ok"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.06)}, "doubtful"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.05)}, "note"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.02)}, "ok"),
        ("host_pressure", {"host": HostUse(pressure=0.30)}, "note"),
        ("host_pressure", {"host": HostUse(pressure=0.31)}, "doubtful"),
        ("host_pressure", {"host": HostUse(waited=0.06)}, "doubtful"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.4, others=0.05)}, "note"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.4, others=0.06)}, "doubtful"),
        ("host_pressure", {"host": HostUse(pressure=0.9, waited=0.02, others=0.9)}, "ok"),
        ("host_pressure", {"host": HostUse(pressure=0.9, others=0.01), "no_cpu": 1}, "doubtful"),
        ("host_steal", {"host": HostUse(pressure=0.0, steal=0.04)}, "doubtful"),
        ("host_steal", {"host": HostUse(steal=0.01)}, "ok"),
        ("decode_rate", {"engine_ratio": 0.98}, "ok"),
        ("decode_rate", {"engine_ratio": 0.96}, "doubtful"),
        ("cold_cache", {"cache": "cold", "cached_share": 0.02}, "ok"),
        ("cold_cache", {"cache": "cold", "cached_share": 0.5}, "doubtful"),
        ("cold_cache", {"cache": "warm", "cached_share": 0.5}, "ok"),
        ("cold_cache", {"cache": "shared", "cached_share": 0.98}, "ok"),
        ("cold_cache", {"cache": "shared", "cached_share": 0.98, "unique_cached": 0.02}, "ok"),
        ("cold_cache", {"cache": "shared", "cached_share": 0.98, "unique_cached": 0.03}, "doubtful"),
        ("preemptions", {"preemptions": 3}, "doubtful"),
        ("throttling", {"throttled": 1.0, "throttle": ("power cap",)}, "note"),
        ("throttling", {"throttled": 0.06, "throttle": ("thermal",)}, "doubtful"),
        ("throttling", {"throttled": 0.05, "throttle": ("thermal",)}, "ok"),
        ("gpu_clocks", {"clock_spread": 0.05}, "ok"),
        ("gpu_clocks", {"clock_spread": 0.2}, "doubtful"),
        ("client_clock", {"clock_steps": 1}, "doubtful"),
        ("coalesced_chunks", {"coalesced_chunks": 0.01}, "ok"),
        ("coalesced_chunks", {"coalesced_chunks": 0.25}, "note"),
        ("coalesced_chunks", {"coalesced_chunks": 0.26}, "doubtful"),
        ("server_restart", {"restarted": True}, "doubtful"),
        ("server_stall", {"frozen": 1, "silence_s": 7.0}, "doubtful"),
        ("server_stall", {"all_waiting": 2, "silence_s": 7.0}, "doubtful"),
        ("host_pressure", {"no_cpu": 1}, "doubtful"),
        ("several_servers", {"several_servers": True}, "note"),
    ],
)
def test_limits(code: str, facts: dict[str, Any], state: str) -> None:
    assert line(code, **facts).state == state


@pytest.mark.parametrize(
    ("code", "facts", "limit"),
    [
        ("host_pressure", {"host": HostUse(pressure=0.27)}, "a remark only (a doubt: more than 30 % of the time)"),
        (
            "host_pressure",
            {"host": HostUse(pressure=0.9, waited=0.03)},
            "client and server waited only a little for a CPU; a remark only "
            "(a doubt: more than 30 % of the time and 0.05 s in each second)",
        ),
        ("host_steal", {"host": HostUse(steal=0.02)}, "a remark only (a doubt: more than 3 % of CPU time)"),
        ("client_cpu", {"worker_cpu": 0.8}, "a remark only (a doubt: more than 95 % of a core)"),
        ("other_clients", {"other_requests": 1.0, "own_requests": 100}, "(a doubt: more than 2 % of our requests)"),
        ("token_counts", {"miscounted": 0.02}, "(a doubt: more than 2 % of answers, or 10 % of their tokens)"),
        ("first_reads", {"first_coalesced": 0.06, "first_error": 0.01}, "(a doubt: more than 1 % off)"),
        ("host_clocks", {"clock_bound_s": 0.002}, "(a doubt: more than ±5 ms)"),
        ("coalesced_chunks", {"coalesced_chunks": 0.2}, "(a doubt: more than 25 %)"),
    ],
)
def test_a_remark_says_its_limit_and_does_not_read_like_a_doubt(code: str, facts: dict[str, Any], limit: str) -> None:
    found = line(code, **facts)
    assert found.state == "note" and found.sentence.endswith(limit)
    assert "was busy" not in found.sentence or code == "host_steal"


def test_how_long_tasks_waited_for_a_cpu_is_said_once_for_both_figures() -> None:
    waited = "tasks waited for a CPU in 27 % of the time, client and server together 0.34 s in each second"
    assert line("host_pressure", host=HostUse(pressure=0.27, waited=0.34)).value == waited
    alone = "client and server together waited for a CPU 0.34 s in each second"
    assert line("host_pressure", host=HostUse(waited=0.34)).value == alone


def test_wrong_usage_is_not_taken_for_another_client() -> None:
    counts = {"client_tokens": 500, "server_tokens": 1000, "other_clients": 0.0, "in_flight": 4}
    assert line("other_clients", **counts).state == "doubtful"
    assert line("other_clients", **counts, other_requests=0.0, own_requests=9).state == "ok"
    assert line("other_clients", **counts, miscounted=1.0).state == "ok"
    assert "contradicts" in line("token_counts", **counts, miscounted=1.0).sentence


@pytest.mark.parametrize(
    ("client", "said"), [(13_290.0, "agree"), (13_253.0, "agree within 0.3 %"), (13_289.0, "agree within 0.1 %")]
)
def test_token_counts_that_differ_a_little_agree_within_a_share(client: float, said: str) -> None:
    found = line("token_counts", client_tokens=client, server_tokens=13_290.0)
    assert (found.state, found.sentence) == ("ok", f"all counts of the tokens {said}")


def test_doubtful_lines_temper_a_result_in_words() -> None:
    lines = judge(QualityFacts(host=HostUse(pressure=0.9), frozen=1, coalesced_chunks=0.1))
    assert find_doubts(lines) == ("the server froze", "the host was busy")
    assert temper("sweet spot C=4", find_doubts(lines)) == (
        "sweet spot C=4; not sure: the server froze and the host was busy"
    )
    assert temper("sweet spot C=4", ("one", "two", "three")) == "sweet spot C=4; not sure: one, two and 1 other doubt"
    assert temper("sweet spot C=4", find_doubts(judge(GOOD))) == "sweet spot C=4"
    assert temper("", find_doubts(lines)) == ""


def test_every_rule_that_can_be_doubtful_says_why() -> None:
    doubtful = QualityFacts(
        lag_p99_s=1.0, tpot_s=0.01, turnaround=1.0, send_delay=1.0, worker_cpu=1.0, c=8, c_held=1.0, in_flight=8,
        other_clients=8.0, token_sources=("chunks",), miscounted=1.0, engine_ratio=2.0, cache="cold",
        cached_share=1.0, preemptions=1.0, throttled=1.0, throttle=("thermal",), clock_spread=1.0, clock_steps=1,
        clock_bound_s=1.0, coalesced_chunks=1.0, first_coalesced=1.0, first_error=1.0, restarted=True, frozen=1,
        host=HostUse(pressure=1.0, steal=1.0),
    )  # fmt: skip
    lines = judge(doubtful)
    assert {rule.code for rule in RULES} - {line.code for line in lines} == {"several_servers", "connections"}
    assert len(find_doubts(lines)) == len(lines) == len(RULES) - 2


def test_idle_server_alone_does_not_rule_out_other_clients() -> None:
    assert judge(QualityFacts(idle_before=True)) == ()


def test_cold_cache_is_unknown_without_a_cached_share() -> None:
    assert judge(QualityFacts(cache="cold")) == ()
    assert judge(QualityFacts(cached_share=0.9)) == ()


@given(
    st.builds(
        QualityFacts,
        lag_p99_s=st.none() | st.floats(0, 10),
        tpot_s=st.none() | st.floats(1e-9, 10),
        worker_cpu=st.none() | st.floats(0, 64),
        c=st.none() | st.integers(0, 10000),
        c_held=st.none() | st.floats(0, 10000),
        turnaround=st.none() | st.floats(0, 100),
        send_delay=st.none() | st.floats(0, 100),
        frozen=st.none() | st.integers(0, 10),
        all_waiting=st.none() | st.integers(0, 10),
        no_cpu=st.none() | st.integers(0, 10),
        silence_s=st.none() | st.floats(0, 100),
        uncertain_tokens=st.none() | st.floats(0, 10000),
        in_flight=st.none() | st.integers(0, 10000),
        other_clients=st.none() | st.floats(0, 10000),
        other_requests=st.none() | st.floats(0, 10000),
        client_tokens=st.none() | st.integers(0, 10**9),
        server_tokens=st.none() | st.integers(0, 10**9),
        engine_ratio=st.none() | st.floats(0, 1e5),
        cache=st.sampled_from([None, "cold", "shared", "warm"]),
        unique_cached=st.none() | st.floats(0, 1),
        cached_share=st.none() | st.floats(0, 1),
        throttled=st.none() | st.floats(0, 1),
        clock_spread=st.none() | st.floats(0, 1),
        coalesced_chunks=st.none() | st.floats(0, 1),
        miscounted=st.none() | st.floats(0, 1),
        first_coalesced=st.none() | st.floats(0, 1),
        first_error=st.none() | st.floats(0, 10),
    )
)
def test_any_facts_can_be_judged(facts: QualityFacts) -> None:
    lines = judge(facts)
    assert all(line.code and line.value and line.sentence for line in lines)


@given(st.integers(20, 5000), st.integers(1, 8), st.sampled_from([0.5, 0.8, 1.25, 2.0]))
def test_usage_is_judged_by_the_tokens_of_the_text(tokens: int, per_chunk: int, factor: float) -> None:
    """A right count is one of the tokenizer or, token by token, of the chunks; all others are named."""
    chunks = -(-tokens // per_chunk)
    right, wrong = (Record(task=0, chunks=chunks, tokens_out=round(share * tokens)) for share in (1.0, factor))
    assert usage_facts([(right, tokens)]).usage_apart == 0.0
    if per_chunk == 1:
        assert usage_facts([(right, round(0.9 * tokens))]).usage_apart == 0.0, "the text is split in another way"
    counts = line("token_counts", **asdict(usage_facts([(wrong, tokens)])))
    assert counts.state == ("doubtful" if abs((wrong.tokens_out or 0) - tokens) > 0.02 * tokens + 3 else "ok")


def test_usage_is_not_judged_without_a_tokenizer() -> None:
    assert usage_facts([]) == QualityFacts()


def test_the_programs_that_made_the_host_busy_are_named() -> None:
    script = Program(name="python3 train.py", cores=0.84, pid=1234)
    programs = (script, Program(name="cc1", cores=0.31), Program(name="git", cores=0.05))
    busy = HostUse(pressure=0.9, waited=0.4, others=0.42, programs=programs)
    found = line("host_pressure", host=busy)
    assert found.value.endswith(", other programs used 42 % of the CPU time")
    named = "python3 train.py (pid 1234, 0.8 cores)"
    said = f"the host was busy with other programs: {named}, cc1 (0.3 cores) and git (0.1 cores)"
    assert found.sentence.endswith(f"were delayed: {said}")
    assert find_doubts([found]) == (said,)
    busy = HostUse(pressure=0.9, waited=0.4, others=0.42, programs=programs[:1])
    (flag,) = with_host_use(level(4), busy).flags
    assert flag.text.startswith(f"the host was busy with another program: {named}: tasks waited for a CPU in 90 %")


def test_a_client_and_a_server_that_share_a_quiet_host_are_no_doubt() -> None:
    quiet = HostUse(pressure=0.9, waited=0.4, others=0.03, programs=(Program(name="git", cores=0.06),))
    found = line("host_pressure", host=quiet)
    assert found.state == "note" and found.programs == () and find_doubts([found]) == ()
    assert "no other program was busy" in found.sentence and with_host_use(level(4), quiet).flags == ()


def test_cpu_time_of_others_alone_is_no_finding() -> None:
    assert judge(QualityFacts(host=HostUse(others=0.9))) == ()


DEFAULT = parse_slo("ttft_p90=2s,stream_p10=20")


@pytest.mark.parametrize(
    ("slo", "doubted"),
    [
        # What each doubt touches: gaps, first tokens, counted tokens, or the output of several hosts together.
        ("ttft_p90=2s,stream_p10=20", {"first_reads", "token_source", "decode_rate"}),
        ("ttft_p90=2s", {"first_reads"}),
        ("stall_p90=1s", {"coalesced_chunks", "decode_rate"}),
        ("e2e_p90=9s", set()),
    ],
)
def test_a_number_of_agents_is_doubted_only_by_what_touches_its_slo(slo: str, doubted: set[str]) -> None:
    facts = QualityFacts(
        coalesced_chunks=0.29, first_coalesced=1.0, first_error=0.5, token_sources=("chunks",), clock_bound_s=1.0,
        engine_ratio=2.0,
    )  # fmt: skip
    lines = judge(facts, asked_figures(parse_slo(slo), searched=True))
    assert {line.code for line in lines if line.state == "doubtful"} == doubted
    assert {line.state for line in lines if line.code not in doubted} <= {"note"}
    assert all("the number of agents is not touched" in line.sentence for line in lines if line.code not in doubted)
    assert all(line.inexact for line in lines), "a remark for this answer still is an inexact figure"


def test_what_disturbs_the_whole_measurement_doubts_every_answer() -> None:
    facts = QualityFacts(
        restarted=True, frozen=1, host=HostUse(pressure=0.9, steal=0.9), cache="cold", cached_share=1.0
    )
    for slo in (DEFAULT, parse_slo("stall_p90=1s"), None):
        lines = judge(facts, asked_figures(slo, searched=slo is not None))
        assert {line.state for line in lines} == {"doubtful"}


def test_a_sweep_is_doubted_by_what_touches_its_tables() -> None:
    facts = QualityFacts(coalesced_chunks=0.29, clock_bound_s=1.0)
    lines = {line.code: line for line in judge(facts, asked_figures(None, searched=False))}
    assert (lines["coalesced_chunks"].state, lines["host_clocks"].state) == ("note", "doubtful")
    assert "tok/s and first tokens are not touched" in lines["coalesced_chunks"].sentence
    assert "fewer agents" in lines["coalesced_chunks"].sentence
    judged = {line.code: line for line in judge(facts, asked_figures(parse_slo("stall_p90=1s"), searched=False))}
    assert judged["coalesced_chunks"].state == "doubtful"


def test_waiting_for_a_cpu_without_another_program_is_a_remark_that_says_why() -> None:
    found = line("host_pressure", host=HostUse(pressure=0.41, waited=0.57, others=0.0))
    assert found.state == "note"
    assert "other programs used 0 % of the CPU time" in found.value
    assert "no other program was busy; server and client themselves used the CPUs" in found.sentence
