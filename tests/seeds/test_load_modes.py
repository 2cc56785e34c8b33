"""Load modes that no published benchmark uses: open loops, ramps, replicas, the search for the cliff."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.programs import Sandbox
from tests.seeds.test_seeds import run_and_summarise

OPEN = "sim:moe-tp1?speed=40&output.cv=0&output.median=10"
ONE_SLOT = "sim:moe-tp1?speed=10&slots=1&output.cv=0&output.median=100"


def level_requests(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Return the requests of levels, in the order in which they were due."""
    found = [request for request in sandbox.detail()["requests"] if request["phase"] == "level"]
    return sorted(found, key=lambda request: int(request["t_sched_ns"]))


def test_recorded_arrivals_follow_the_poisson_process(sandbox: Sandbox) -> None:
    """Kolmogorov–Smirnov test on the recorded schedule: exponential gaps, however busy the machine is."""
    rate, count = 250.0, 400
    words = ("--workload", "chat", "--rate", f"{rate:g}", "--requests", str(count), "--seed", "1")
    (level,) = run_and_summarise(sandbox, OPEN, *words)["levels"]
    assert (level["n"], level["errors"], level["rate"], level["load"]) == (count, 0, rate, "open")
    requests = level_requests(sandbox)
    gaps = sorted((b["t_sched_ns"] - a["t_sched_ns"]) / 1e9 for a, b in pairwise(requests))
    cdf = [1.0 - math.exp(-rate * gap) for gap in gaps]
    distance = max(max(abs(p - i / len(cdf)), abs(p - (i + 1) / len(cdf))) for i, p in enumerate(cdf))
    assert distance < 1.63 / math.sqrt(len(cdf))
    assert all(request["t_sent_ns"] >= request["t_sched_ns"] for request in requests)
    assert level["send_delay_s"]["n"] == count and level["send_delay_s"]["p99"] is not None


def test_latency_above_capacity_counts_from_the_due_time(sandbox: Sandbox) -> None:
    """Answers of 60 ms at 40 requests/s with two in flight: latencies from sending would hide the queue."""
    path = sandbox.home / "open.toml"
    path.write_text(
        'kind = "prompts"\nname = "open"\nprompts = [{ text = "Say something." }]\n'
        '[load]\nmode = "open"\nrate = 40\narrival = "constant"\nrequests = 40\nstreams = 2\n'
    )
    summary = run_and_summarise(sandbox, ONE_SLOT, "--workload", str(path), "--seed", "1")
    (level,) = summary["levels"]
    requests = level_requests(sandbox)
    from_due = [(r["t_first_ns"] - r["t_sched_ns"]) / 1e9 for r in requests]
    from_sent = [(r["t_first_ns"] - r["t_sent_ns"]) / 1e9 for r in requests]
    assert level["ttft_s"]["max"] == pytest.approx(max(from_due))
    assert level["ttft_s"]["mean"] == pytest.approx(sum(from_due) / 40)
    # 2.4 s of work arrive within one second: the last request waits for the rest, at the client.
    assert from_due[-1] > 1.0 and sum(from_due[-10:]) > 3 * sum(from_due[:10])
    assert sum(from_sent) < sum(from_due) / 3
    assert level["served_per_s"] < 0.7 * level["arrived_per_s"]
    assert "the queue grows" in summary["scaling"]["sentence"]


def test_several_rates_are_several_levels(sandbox: Sandbox) -> None:
    words = ("--workload", "chat", "--rate", "20,40", "--requests", "20", "--seed", "1", "--runs", "2", "--no-gpu")
    ran = sandbox.run_benchmark(OPEN, *words, "--quiet")
    assert ran.code == 0, ran
    levels = sandbox.show_session()["levels"]
    assert [(level["rate"], level["n"], level["runs"]) for level in levels] == [(20, 40, 2), (40, 40, 2)]
    head = ran.out.splitlines()[0]
    assert "rate" in head and "in flight" in head and "512" not in head
    assert [line.split("|")[1].strip() for line in ran.out.splitlines()[2:4]] == ["20", "40"]
    text = sandbox.run("export", "last", "--format", "csv", "--session-dir", str(sandbox.sessions))
    assert text.code == 0


def test_ramp_steps_through_its_levels(sandbox: Sandbox) -> None:
    path = sandbox.home / "ramp.toml"
    path.write_text(
        'kind = "random"\nname = "ramp"\ninput_tokens = 20\noutput_tokens = 20\n'
        '[load]\nmode = "ramp"\nto = 4\nby = "doubling"\nevery = "1200ms"\n'
    )
    levels = run_and_summarise(sandbox, "sim:moe-tp1?speed=20", "--workload", str(path))["levels"]
    assert [level["c"] for level in levels] == [1, 2, 4]
    assert all(level["ok"] >= 4 * level["c"] and level["load"] == "ramp" for level in levels)


def test_figures_of_each_of_two_replicas(sandbox: Sandbox) -> None:
    endpoint = "sim:moe-tp1?speed=20"
    words = ("--endpoint", endpoint, "--workload", "chat", "--levels", "1,4", "--requests", "24", "--complete")
    alone, level = json.loads(sandbox.run_benchmark(endpoint, *words, "--json", "--quiet").out)["levels"]
    # Both are idle when the only stream sends a request, so they alternate.
    assert [part["n"] for part in alone["replicas"]] == [12, 12]
    assert [part["endpoint"] for part in level["replicas"]] == [0, 1]
    assert sum(part["n"] for part in level["replicas"]) == 24 and all(part["n"] >= 6 for part in level["replicas"])
    assert sum(part["out_tps_wall"] for part in level["replicas"]) == pytest.approx(level["out_tps_wall"])


def test_cliff_search_chooses_its_levels(sandbox: Sandbox) -> None:
    words = ("--find-cliff", "--workload", "chat", "--max-tokens", "60", "--seed", "1")
    summary = run_and_summarise(sandbox, "sim:moe-tp1?speed=10&slots=2&output.cv=0", *words)
    assert [level["c"] for level in summary["levels"]][:2] == [1, 2]
    assert any(event["name"] == "cliff" and event["detail"] for event in summary["events"])
