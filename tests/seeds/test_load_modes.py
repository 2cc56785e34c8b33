"""Ways of laying on load that no published benchmark has: open loops, ramps, replicas, the search for the cliff."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.programs import Place
from tests.seeds.test_seeds import measured

OPEN = "sim:moe-tp1?speed=40&output.cv=0&output.median=10"
ONE_SEAT = "sim:moe-tp1?speed=10&seats=1&output.cv=0&output.median=100"


def level_requests(place: Place) -> list[dict[str, Any]]:
    """In the order in which they were due."""
    found = [request for request in place.detail()["requests"] if request["phase"] == "level"]
    return sorted(found, key=lambda request: int(request["t_sched_ns"]))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_recorded_arrivals_are_those_of_the_process_asked_for(place: Place, seed: str) -> None:
    """Kolmogorov and Smirnov on what a session keeps of its schedule: exponential gaps, whatever the machine did."""
    rate, count = 250.0, 400
    words = ("--workload", "chat", "--rate", f"{rate:g}", "--requests", str(count), "--seed", seed)
    (level,) = measured(place, OPEN, *words)["levels"]
    assert (level["n"], level["errors"], level["rate"], level["load"]) == (count, 0, rate, "open")
    requests = level_requests(place)
    gaps = sorted((b["t_sched_ns"] - a["t_sched_ns"]) / 1e9 for a, b in pairwise(requests))
    cdf = [1.0 - math.exp(-rate * gap) for gap in gaps]
    distance = max(max(abs(p - i / len(cdf)), abs(p - (i + 1) / len(cdf))) for i, p in enumerate(cdf))
    assert distance < 1.63 / math.sqrt(len(cdf))
    assert all(request["t_sent_ns"] >= request["t_sched_ns"] for request in requests)
    assert level["lateness_s"]["n"] == count and level["lateness_s"]["p99"] is not None


def test_above_capacity_latency_grows_from_when_a_request_was_due(place: Place) -> None:
    """Answers of 60 ms, forty a second, two in flight at most: who counts from sending sees no queue at all."""
    path = place.home / "open.toml"
    path.write_text(
        'kind = "prompts"\nname = "open"\nprompts = [{ text = "Say something." }]\n'
        '[load]\nmode = "open"\nrate = 40\narrival = "constant"\nrequests = 40\nstreams = 2\n'
    )
    summary = measured(place, ONE_SEAT, "--workload", str(path), "--seed", "1")
    (level,) = summary["levels"]
    requests = level_requests(place)
    from_due = [(r["t_first_ns"] - r["t_sched_ns"]) / 1e9 for r in requests]
    from_sent = [(r["t_first_ns"] - r["t_sent_ns"]) / 1e9 for r in requests]
    assert level["ttft_s"]["max"] == pytest.approx(max(from_due))
    assert level["ttft_s"]["mean"] == pytest.approx(sum(from_due) / 40)
    # 2.4 s of work came within one: the last of them waited for the rest, and all but two of them at the client.
    assert from_due[-1] > 1.0 and sum(from_due[-10:]) > 3 * sum(from_due[:10])
    assert sum(from_sent) < sum(from_due) / 3
    assert level["served_per_s"] < 0.7 * level["arrived_per_s"]
    assert "requests pile up" in summary["scaling"]["sentence"]


def test_several_rates_are_as_many_levels(place: Place) -> None:
    words = ("--workload", "chat", "--rate", "20,40", "--requests", "20", "--seed", "1", "--runs", "2", "--no-gpu")
    ran = place.measure(OPEN, *words, "--quiet")
    assert ran.code == 0, ran
    levels = place.shown()["levels"]
    assert [(level["rate"], level["n"], level["runs"]) for level in levels] == [(20, 40, 2), (40, 40, 2)]
    head = ran.out.splitlines()[0]
    assert "rate" in head and "real C" in head and "512" not in ran.out
    assert [line.split("|")[1].strip() for line in ran.out.splitlines()[2:4]] == ["20", "40"]
    text = place.run("export", "last", "--format", "csv", "--session-dir", str(place.sessions))
    assert text.code == 0


def test_a_ramp_goes_up_without_a_stop(place: Place) -> None:
    path = place.home / "ramp.toml"
    path.write_text(
        'kind = "random"\nname = "ramp"\ninput_tokens = 20\noutput_tokens = 20\n'
        '[load]\nmode = "ramp"\nto = 4\nby = "doubling"\nevery = "700ms"\n'
    )
    levels = measured(place, "sim:moe-tp1?speed=20", "--workload", str(path))["levels"]
    assert [level["c"] for level in levels] == [1, 2, 4]
    assert all(level["ok"] >= 4 * level["c"] and level["load"] == "ramp" for level in levels)


def test_figures_of_each_of_two_replicas(place: Place) -> None:
    endpoint = "sim:moe-tp1?speed=20"
    words = ("--endpoint", endpoint, "--workload", "chat", "--levels", "1,4", "--requests", "24", "--json", "--quiet")
    alone, level = json.loads(place.measure(endpoint, *words).out)["levels"]
    # Both are idle when the one stream asks: each gets every other request.
    assert [part["n"] for part in alone["replicas"]] == [12, 12]
    assert [part["endpoint"] for part in level["replicas"]] == [0, 1]
    assert sum(part["n"] for part in level["replicas"]) == 24 and all(part["n"] >= 6 for part in level["replicas"])
    assert sum(part["out_tps_wall"] for part in level["replicas"]) == pytest.approx(level["out_tps_wall"])


def test_a_search_for_the_cliff_chooses_its_levels(place: Place) -> None:
    words = ("--find-cliff", "--workload", "chat", "--max-tokens", "60", "--seed", "1")
    summary = measured(place, "sim:moe-tp1?speed=10&seats=2&output.cv=0", *words)
    assert [level["c"] for level in summary["levels"]][:2] == [1, 2]
    assert any(event["name"] == "cliff" and event["detail"] for event in summary["events"])
