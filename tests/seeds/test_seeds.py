"""Each published benchmark in one command, on the simulator: the rows come out as they were published."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from tests.cli.programs import ROOT, Place

P = ParamSpec("P")

ROWS = {
    "moe-tp2-nvlink": (166, 218, 245, 399),
    "moe-tp1": (167, 215, 227, 336),
    "dense-tp2-nvlink": (31, 46, 48, 82),
    "dense-tp1": (39, 63, 69, 127),
}
CONTENTION = {"moe-tp2-nvlink": 0.25, "moe-tp1": 0.40, "dense-tp2-nvlink": 0.23, "dense-tp1": 0.065}
# So fast that a step takes about half a millisecond: the client's own time must not show.
SPEED = {"moe-tp2-nvlink": 10, "moe-tp1": 10, "dense-tp2-nvlink": 40, "dense-tp1": 40}

PRIMARY = {"gpt-oss-20b-5slot": (127, 49, 45, 34), "qwen3-coder-5slot": (80, 34, 29, 26)}


def on_a_calm_machine(test: Callable[P, None]) -> Callable[P, None]:
    """Rates to within a few percent need a core for the simulator: a neighbour may spoil two runs, but not three."""

    @wraps(test)
    def again(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(2):
            try:
                return test(*args, **kwargs)
            except AssertionError:
                continue
        return test(*args, **kwargs)

    return again


def measured(place: Place, endpoint: str, *words: str) -> dict[str, Any]:
    ran = place.measure(endpoint, *words, "--json", "--quiet", "--no-gpu")
    assert ran.code == 0, ran
    summary: dict[str, Any] = json.loads(ran.out)
    return summary


def within_5_percent(value: float) -> object:
    return pytest.approx(value, rel=0.05)


def shorter(place: Place, name: str, tokens: int) -> str:
    """The shipped workload with shorter answers, so that a run takes seconds."""
    text = (ROOT / "workloads" / f"{name}.toml").read_text()
    assert "tokens = 2500" in text
    path = place.home / f"{name}.toml"
    path.write_text(text.replace("tokens = 2500", f"tokens = {tokens}"))
    return str(path)


@pytest.mark.parametrize("preset", ROWS)
@on_a_calm_machine
def test_s0_rows_contention_and_speed_up(place: Place, preset: str) -> None:
    speed = SPEED[preset]
    workload = shorter(place, f"s0-rows-{preset.partition('-')[0]}", 800)
    summary = measured(place, f"sim:{preset}?speed={speed}", "--workload", workload, "--runs", "1", "--seed", "3")
    levels = summary["levels"]
    assert [level["out_tps_wall"] / speed for level in levels] == [within_5_percent(row) for row in ROWS[preset]]
    assert levels[-1]["contention"] == pytest.approx(CONTENTION[preset], abs=0.02)
    for level in levels[1:]:
        serial = level["serial"]
        assert (serial["extrapolated"], serial["tasks"], level["token_ratio"]) == (False, level["c"], 1.0)
        assert level["wall_speedup"] == pytest.approx(serial["wall_s"] / level["wall_s"])
    assert levels[-1]["wall_speedup"] == pytest.approx(ROWS[preset][3] / ROWS[preset][0], rel=0.08)


def test_s0_prints_serial_against_swarm(place: Place) -> None:
    words = ("--workload", "s0-swarm-coding", "--levels", "1,2", "--runs", "1", "--seed", "1", "--quiet")
    ran = place.measure("sim:moe-tp1?speed=20", *words)
    assert ran.code == 0, ran
    assert "One by one against together" in ran.out and "token ratio" in ran.out
    again = place.run("sessions", "show", "last", "--session-dir", str(place.sessions))
    assert "One by one against together" in again.out


@on_a_calm_machine
def test_s1_two_replicas_sweet_spot_queue_and_anomaly(place: Place) -> None:
    words = ("--workload", "random-1k-1k", "--levels", "1,2,4,8", "--requests", "16", "--seed", "1")
    summary = measured(place, "sim:qwen36-27b-2x?speed=40", *words)
    rows = [level["out_tps_wall"] / 40 for level in summary["levels"]]
    assert rows == [within_5_percent(row) for row in (82, 154, 225, 167)]
    said = summary["scaling"]["sentence"]
    assert "sweet spot C=4 (2 replicas × 2 seats)" in said and "cliff at C=8" in said
    assert any("fell" in anomaly for anomaly in summary["scaling"]["anomalies"])
    assert summary["levels"][-1]["ttft_s"]["mean"] * 40 == pytest.approx(19, rel=0.12)


@on_a_calm_machine
def test_s1_the_moe_is_flat_past_its_seats(place: Place) -> None:
    """The published row at C=1 is of short answers."""
    words = ("--workload", "random-1k-1k", "--seed", "1")
    alone = ("--levels", "1", "--requests", "6", "--max-tokens", "256")
    short = measured(place, "sim:qwen36-35b-moe?speed=8", *words, *alone)
    assert short["levels"][0]["out_tps_wall"] / 8 == within_5_percent(90)
    summary = measured(place, "sim:qwen36-35b-moe?speed=40", *words, "--levels", "2,4,8", "--requests", "32")
    rows = [level["out_tps_wall"] / 40 for level in summary["levels"]]
    assert rows == [within_5_percent(row) for row in (161, 283, 282)]
    assert "cliff at C=8" in summary["scaling"]["sentence"]


@on_a_calm_machine
def test_s2_fifty_agents_at_once_with_the_serial_time_extrapolated(place: Place) -> None:
    speed = 10
    words = ("--workload", "s2-swarm-50", "--seed", "1", "--serial-rates", "85.4,13.4")
    summary = measured(place, f"sim:b70-swarm?speed={speed}", *words)
    (level,) = summary["levels"]
    assert level["c"] == level["ok"] == 50
    assert level["wall_s"] * speed == within_5_percent(70)
    assert level["total_tps"] / speed == within_5_percent(1097)
    assert level["out_tps_wall"] / speed == within_5_percent(366)
    assert level["ttft_s"]["mean"] * speed == within_5_percent(11)
    # The given rates are of a real clock, and the simulated one runs faster.
    assert level["wall_speedup"] / speed == within_5_percent(36)
    assert level["serial"]["wall_s"] == within_5_percent(2510)
    assert level["serial"]["extrapolated"] and "85.4 prompt and 13.4 output" in level["serial"]["how"]
    assert level["token_ratio"] is None


def test_s2_from_a_sample_asked_alone(place: Place) -> None:
    (level,) = measured(place, "sim:b70-swarm?speed=80", "--workload", "s2-swarm-50", "--levels", "10")["levels"]
    assert (level["n"], level["serial"]["tasks"]) == (10, 1)
    assert level["serial"]["how"] == "extrapolated from 1 task of 10 asked alone"
    assert 5 < level["wall_speedup"] < 10


@pytest.mark.parametrize("preset", PRIMARY)
@on_a_calm_machine
def test_s4_primary_rate_beside_side_tasks(place: Place, preset: str) -> None:
    """Answers all of one length, that say the question again: here all of it in the reasoning."""
    knobs = "speed=10&output.cv=0&output.echo=true&reasoning.share=1"
    summary = measured(place, f"sim:{preset}?{knobs}", "--workload", "s4-mixed-fastapi", "--seed", "1")
    first = {t["c"]: t["per_stream_tps"] / 10 for t in summary["tasks"] if (t["type"], t["turn"]) == ("primary", 0)}
    assert list(first) == [1, 2, 3, 5]
    assert list(first.values()) == [within_5_percent(row) for row in PRIMARY[preset]]
    for level in summary["levels"]:
        assert set(level["verdicts"]) == {"pass in reasoning"}
        assert level["pass_rate"] == 1.0
    assert {t["type"] for t in summary["tasks"] if t["c"] == 5} == {"primary", "docstring", "tests", "bug", "async"}


def test_s4_previews_are_kept_or_not(place: Place) -> None:
    words = ("--workload", "s4-mixed-fastapi", "--levels", "2")
    endpoint = "sim:qwen3-coder-5slot?speed=40&output.cv=0&output.echo=true"
    kept, none = (measured(place, endpoint, *words, *more)["session"]["id"] for more in ((), ("--no-previews",)))
    assert previews(place.sessions / kept) and all(len(text) <= 400 for text in previews(place.sessions / kept))
    assert not previews(place.sessions / none)


def previews(directory: Path) -> list[str]:
    requests = json.loads((directory / "detail.json").read_text())["requests"]
    return [request["text"] for request in requests if request["text"]]


def test_an_orchestrator_and_those_who_wait_for_it(place: Place) -> None:
    summary = measured(place, "sim:moe-tp1?speed=40", "--workload", "orchestrator-dag", "--seed", "1")
    (level,) = summary["levels"]
    assert (level["c"], level["n"], level["ok"]) == (14, 14, 14)
    requests = json.loads((place.session / "detail.json").read_text())["requests"]
    done = {kind: [r for r in requests if r["type"] == kind] for kind in ("plan", "worker", "summary")}
    assert [len(found) for found in done.values()] == [1, 12, 1]
    assert max(r["t_done_ns"] for r in done["plan"]) < min(r["t_sent_ns"] for r in done["worker"])
    assert max(r["t_done_ns"] for r in done["worker"]) < min(r["t_sent_ns"] for r in done["summary"])
    assert min(r["tokens_in"] for r in done["worker"]) > min(r["tokens_out"] for r in done["plan"])


@on_a_calm_machine
def test_an_open_loop_counts_from_when_a_request_was_due(place: Place) -> None:
    """One seat, answers of 60 ms: at forty a second the queue grows, and the latency with it; at ten it does not."""
    endpoint = "sim:moe-tp1?speed=10&seats=1&output.cv=0&output.median=100"
    words = ("--workload", "chat", "--requests", "40", "--seed", "1", "--arrival", "constant")
    (over,) = measured(place, endpoint, *words, "--rate", "40")["levels"]
    (under,) = measured(place, endpoint, *words, "--rate", "10")["levels"]
    for level in (over, under):
        assert (level["n"], level["errors"], level["load"]) == (40, 0, "open")
    assert over["rate"] == 40 and over["ttft_s"]["max"] > 0.8 > over["ttft_s"]["min"]
    assert under["ttft_s"]["max"] < 0.3
    assert under["lateness_s"]["n"] == 40


def test_a_ramp_goes_up_without_a_stop(place: Place) -> None:
    path = place.home / "ramp.toml"
    path.write_text(
        'kind = "random"\nname = "ramp"\ninput_tokens = 20\noutput_tokens = 20\n'
        '[load]\nmode = "ramp"\nto = 4\nby = "doubling"\nevery = "500ms"\n'
    )
    levels = measured(place, "sim:moe-tp1?speed=20", "--workload", str(path))["levels"]
    assert [level["c"] for level in levels] == [1, 2, 4]
    assert all(level["ok"] >= 4 * level["c"] and level["load"] == "ramp" for level in levels)


def test_levels_in_rotation_share_no_prompt(place: Place) -> None:
    words = ("--workload", "s0-swarm-coding", "--levels", "1,2,3", "--runs", "2", "--max-tokens", "8", "--seed", "4")
    summary = measured(place, "sim:moe-tp1?speed=40", *words)
    journal = [json.loads(line) for line in (place.session / "journal.jsonl").read_text().splitlines()]
    order = [(e["run"], e["c"]) for e in journal if e["kind"] == "stretch" and e["phase"] == "level"]
    assert order == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 1)]
    assert [level["runs"] for level in summary["levels"]] == [2, 2, 2]


def test_figures_of_each_of_two_replicas(place: Place) -> None:
    endpoint = "sim:moe-tp1?speed=20"
    ran = place.measure(
        endpoint, "--endpoint", endpoint, "--workload", "chat", "--levels", "4", "--requests", "24", "--json", "--quiet"
    )
    (level,) = json.loads(ran.out)["levels"]
    assert [part["endpoint"] for part in level["replicas"]] == [0, 1]
    assert sum(part["n"] for part in level["replicas"]) == 24 and all(part["n"] >= 6 for part in level["replicas"])
    assert sum(part["out_tps_wall"] for part in level["replicas"]) == pytest.approx(level["out_tps_wall"])


def test_a_search_for_the_cliff_chooses_its_levels(place: Place) -> None:
    words = ("--find-cliff", "--workload", "chat", "--max-tokens", "60", "--seed", "1")
    summary = measured(place, "sim:moe-tp1?speed=10&seats=2&output.cv=0", *words)
    assert [level["c"] for level in summary["levels"]][:2] == [1, 2]
    assert any(event["name"] == "cliff" and event["detail"] for event in summary["events"])
