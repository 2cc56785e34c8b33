from __future__ import annotations

from typing import Any

import pytest

from swarmtui.analysis.quality.checks import checks, checks_sentence
from swarmtui.analysis.quality.observed import Observed, observe
from swarmtui.model.findings import Check
from swarmtui.model.session import Level
from swarmtui.model.telemetry import DiscoveredServer, Gpu, QualityLine, ServerState, Telemetry
from tests.analysis.level_builders import level, session
from tests.analysis.record_builders import BOOT_NS, MS, request

GOOD = Observed(
    throttle=(), clock_spread=0.01, idle_before=True, others=0.0, preemptions=0.0, cache_hits=0.0, engine_ratio=1.01,
    lag_p99_s=0.0001, cpu=0.2,
)  # fmt: skip


def good_level(**fields: Any) -> Level:
    return level(2, tps=100, tpot=0.01, runs=[100, 101, 99, 100], **fields)


def found(
    *, levels: list[Level] | None = None, observed: Observed = GOOD, warmup: int = 4, damaged: int = 0, **fields: Any
) -> dict[str, Check]:
    made = session(**({"server_flags": "--max-num-seqs 4"} | fields))
    lines = checks(
        made, [good_level()] if levels is None else levels, observed, warmup_requests=warmup, damaged_lines=damaged
    )
    return {line.name: line for line in lines}


def test_a_session_in_which_everything_holds_is_fit_to_publish() -> None:
    lines = found()
    assert {line.state for line in lines.values()} == {"ok"}
    assert len(lines) == 15
    assert checks_sentence(list(lines.values())) == "fit to publish: all 15 checks hold"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("warm-up", {"warmup": 0}),
        ("cache", {"levels": [good_level(cached_tokens=50)]}),
        ("errors", {"levels": [good_level(errors=1)]}),
        ("token source", {"levels": [good_level(token_source="chunks")]}),
        ("samples", {"levels": [level(2, tps=100, tpot=0.01, runs=[100, 101, 99])]}),
        ("spread", {"levels": [level(2, tps=100, tpot=0.01, runs=[90, 110, 95, 105])]}),
        ("achieved C", {"levels": [good_level(c_achieved=1.8)]}),
        ("workload and flags", {"server_flags": ""}),
        ("clocks", {"observed": Observed(throttle=("thermal",), clock_spread=0.01)}),
        ("clocks", {"observed": Observed(throttle=(), clock_spread=0.2)}),
        ("client", {"observed": Observed(lag_p99_s=0.002, cpu=0.1)}),
        ("client", {"observed": Observed(lag_p99_s=0.0, cpu=0.9)}),
        ("alone", {"observed": Observed(idle_before=False, others=0.0)}),
        ("alone", {"observed": Observed(idle_before=True, others=3.0)}),
        ("preemptions", {"observed": Observed(preemptions=2.0)}),
        ("engine agrees", {"observed": Observed(engine_ratio=1.05)}),
        ("journal", {"damaged": 2}),
    ],
)
def test_each_line_can_fail(name: str, given: dict[str, Any]) -> None:
    line = found(**given)[name]
    assert line.state == "not ok"
    assert line.value and line.limit and line.sentence


@pytest.mark.parametrize("name", ["clocks", "client", "alone", "preemptions", "engine agrees"])
def test_what_nobody_measured_is_unknown_and_does_not_pass(name: str) -> None:
    lines = found(observed=Observed())
    assert lines[name].state == "unknown"
    assert checks_sentence(list(lines.values())).startswith("not fit to publish")
    assert name in checks_sentence(list(lines.values())).partition("unknown: ")[2]


def test_what_was_judged_while_it_ran_fills_in_what_is_unknown() -> None:
    lag = QualityLine(name="client lag", state="ok", value="p99 0.1 ms", sentence="keeps up")
    cpu = QualityLine(name="client CPU", state="doubtful", value="80 % of a core", sentence="may be the limit")
    cold = QualityLine(name="cold cache", state="ok", value="not known", sentence="nobody tells")
    lines = checks(session(), [good_level(cached_tokens=None)], Observed(), warmup_requests=1, trust=[lag, cpu, cold])
    states = {line.name: line for line in lines}
    assert (states["client"].state, states["client"].value) == ("not ok", "p99 0.1 ms; 80 % of a core")
    assert states["cache"].state == "unknown"
    assert states["preemptions"].state == "unknown"


def test_flags_that_were_found_on_the_host_are_known() -> None:
    found = [DiscoveredServer(url="x", flags={"--max-num-seqs": "4"}), DiscoveredServer(url="y", flags={})]
    lines = checks(session(), [good_level()], GOOD, warmup_requests=1, servers=found)
    assert next(line for line in lines if line.name == "workload and flags").state == "ok"


def test_a_cache_that_nobody_told_of_is_unknown_unless_counters_or_the_workload_say() -> None:
    untold = [good_level(cached_tokens=None)]
    assert found(levels=untold, observed=Observed())["cache"].state == "unknown"
    assert found(levels=untold, observed=Observed(cache_hits=0.0))["cache"].state == "ok"
    assert found(levels=untold, observed=Observed(), workload_spec={"cache": "warm"})["cache"].value == "declared warm"


def test_cap_hits_are_no_bar_because_raw_and_clean_are_shown() -> None:
    line = found(levels=[good_level(cap_hits=3)])["cap hits"]
    assert (line.state, line.value) == ("ok", "3 of 16")


def test_nothing_measured_passes_nothing_that_needs_a_measurement() -> None:
    states = {name: line.state for name, line in found(levels=[]).items()}
    assert [states[n] for n in ("errors", "cap hits", "token source", "samples", "spread", "achieved C")] == [
        "unknown"
    ] * 6


def moment(at: float, **server: Any) -> Telemetry:
    gpu = Gpu(uuid="g", index=0, name="x", throttle=(), sm_mhz=1900 if at < 300 else 1800, utilisation=0.9)
    made: dict[str, Any] = {"engine": "vLLM", "running": 0.0, "waiting": 0.0}
    state = ServerState(**(made | server))
    return Telemetry(t_ns=BOOT_NS + round(at * MS), gpus=(gpu,), servers=(state,))


def test_telemetry_says_how_the_server_was_before_and_what_it_did_meanwhile() -> None:
    records = [request(100, [150, 200, 250, 400], finish_reason="stop", engine_decode_tps=12.24)]
    seen = [
        moment(0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        moment(200, running=1.0, finished=10.0, preemptions=1.0, cache_hits=5.0),
        moment(350, running=1.0, finished=10.0, preemptions=2.0, cache_hits=5.0),
        moment(500, finished=13.0, preemptions=2.0, cache_hits=5.0),
    ]
    observed = observe(records, seen)
    assert observed.idle_before is True
    assert observed.others == 2.0
    assert (observed.preemptions, observed.cache_hits) == (1.0, 0.0)
    assert observed.throttle == ()
    assert observed.clock_spread == pytest.approx(100 / 1900)
    assert observed.engine_ratio == pytest.approx(12.24 / 12.0)


def test_a_counter_that_fell_back_is_not_known() -> None:
    """The server was restarted."""
    seen = [moment(0, preemptions=5.0), moment(500, preemptions=0.0)]
    assert observe([request(100, [200])], seen).preemptions is None


def test_without_telemetry_nothing_is_known() -> None:
    assert observe([request(100, [200])]) == Observed()
