"""The trust panel: its limits, its words, and the light that is the worst of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.quality.trust import Facts, judge, strangers
from swarmtui.model.telemetry import QualityLine

GOOD = Facts(
    lag_p99_ms=0.5,
    tpot_s=0.02,
    kernel_stamps=True,
    worker_cpu=0.3,
    c_target=8,
    c_achieved=7.9,
    in_flight=8,
    strangers=0.0,
    token_source="usage",
    client_tokens=4000,
    server_tokens=4000,
    client_decode_tps=50.0,
    engine_decode_tps=50.5,
    cold_promised=True,
    cached_share=0.0,
    preemptions=0,
    throttled=0.0,
    clock_steps=0,
    shared_reads=0.001,
)


def line(name: str, **facts: Any) -> QualityLine:
    (found,) = [trust for trust in judge(Facts(**facts)) if trust.name == name]
    return found


def test_all_is_well() -> None:
    lines = judge(GOOD)
    assert [trust.state for trust in lines] == ["ok"] * 12
    assert all(trust.value and trust.sentence for trust in lines)


def test_what_is_not_known_gives_no_line() -> None:
    assert judge(Facts()) == ()


@pytest.mark.parametrize(
    ("name", "facts", "state"),
    [
        ("client lag", {"lag_p99_ms": 2.0, "tpot_s": 0.02}, "ok"),
        ("client lag", {"lag_p99_ms": 2.1, "tpot_s": 0.02}, "doubtful"),
        ("client lag", {"lag_p99_ms": 30.0, "tpot_s": 0.02}, "wrong"),
        ("client lag", {"lag_p99_ms": 30.0, "tpot_s": 0.02, "kernel_stamps": True}, "doubtful"),
        ("client CPU", {"worker_cpu": 0.7}, "ok"),
        ("client CPU", {"worker_cpu": 0.8}, "doubtful"),
        ("client CPU", {"worker_cpu": 1.0}, "wrong"),
        ("achieved C", {"c_achieved": 7.7, "c_target": 8}, "ok"),
        ("achieved C", {"c_achieved": 7.0, "c_target": 8}, "doubtful"),
        ("achieved C", {"c_achieved": 4.0, "c_target": 8}, "wrong"),
        ("others on the server", {"strangers": 0.0, "in_flight": 1}, "ok"),
        ("others on the server", {"strangers": 1.0, "in_flight": 8}, "doubtful"),
        ("others on the server", {"strangers": 4.0, "in_flight": 8}, "wrong"),
        ("token source", {"token_source": "engine"}, "ok"),
        ("token source", {"token_source": "chunks"}, "doubtful"),
        ("tokens", {"client_tokens": 1000, "server_tokens": 1000}, "ok"),
        ("tokens", {"client_tokens": 999, "server_tokens": 1000}, "doubtful"),
        ("tokens", {"client_tokens": 500, "server_tokens": 1000}, "wrong"),
        ("decode rate", {"client_decode_tps": 48.0, "engine_decode_tps": 50.0}, "doubtful"),
        ("cold cache", {"cold_promised": True, "cached_share": 0.5}, "wrong"),
        ("cold cache", {"cold_promised": True}, "ok"),
        ("preemptions", {"preemptions": 3}, "doubtful"),
        ("throttling", {"throttled": 1.0, "throttle": ("power cap",)}, "doubtful"),
        ("throttling", {"throttled": 0.5, "throttle": ("thermal",)}, "wrong"),
        ("throttling", {"throttled": 0.01, "throttle": ("thermal",)}, "doubtful"),
        ("clock", {"clock_steps": 1}, "doubtful"),
        ("shared reads", {"shared_reads": 0.05}, "doubtful"),
        ("server", {"restarted": True}, "wrong"),
    ],
)
def test_limits(name: str, facts: dict[str, Any], state: str) -> None:
    assert line(name, **facts).state == state


def test_a_cache_that_was_to_be_warm_is_no_matter() -> None:
    assert judge(Facts(cached_share=0.9)) == ()


def test_strangers_are_those_who_stay() -> None:
    assert strangers([(8, 8), (8, 12), (8, 9)]) == 0.0, "a request of ours that ended between two looks is nobody else"
    assert strangers([(8, 11), (8, 10), (4, 7)]) == 2.0
    assert strangers([(8, 3)]) == 0.0
    assert strangers([]) is None


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        Facts,
        lag_p99_ms=st.none() | st.floats(0, 1e4),
        tpot_s=st.none() | st.floats(0, 10),
        worker_cpu=st.none() | st.floats(0, 64),
        c_target=st.none() | st.integers(0, 10000),
        c_achieved=st.none() | st.floats(0, 10000),
        in_flight=st.none() | st.integers(0, 10000),
        strangers=st.none() | st.floats(0, 10000),
        client_tokens=st.none() | st.integers(0, 10**9),
        server_tokens=st.none() | st.integers(0, 10**9),
        client_decode_tps=st.none() | st.floats(0, 1e5),
        engine_decode_tps=st.none() | st.floats(0, 1e5),
        cached_share=st.none() | st.floats(0, 1),
        throttled=st.none() | st.floats(0, 1),
        shared_reads=st.none() | st.floats(0, 1),
    )
)
def test_any_facts_can_be_judged(facts: Facts) -> None:
    lines = judge(facts)
    assert all(trust.value and trust.sentence for trust in lines)
