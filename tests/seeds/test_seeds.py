"""Each published benchmark as one command in real processes, on a faster simulator.

Rates are tested in virtual time, in test_published_rows.py. The assertions here also hold on a busy machine: load makes
batches slower, never faster, so that no wall rate is above the published one.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Sandbox

SPEED = 10
SHORT = ("--max-tokens", "200", "--runs", "1", "--seed", "3")


def run_and_summarise(sandbox: Sandbox, endpoint: str, *words: str) -> dict[str, Any]:
    ran = sandbox.run_benchmark(endpoint, *words, "--json", "--quiet", "--no-gpu")
    assert ran.code == 0, ran
    summary: dict[str, Any] = json.loads(ran.out)
    return summary


def at_most_published(rates: list[float], rows: tuple[float, ...], speed: float = SPEED) -> bool:
    return all(0 < rate / speed < 1.05 * row for rate, row in zip(rates, rows, strict=True))


@pytest.mark.parametrize(
    ("preset", "workload", "tokens", "rows"),
    [
        ("moe-tp1", "s0-rows-moe", [200, 272, 310, 590], (167, 215, 227, 336)),
        ("dense-tp1", "s0-rows-dense", [200, 322, 350, 680], (39, 63, 69, 127)),
    ],
)
def test_s0_batches_compared_with_serial_tasks(
    sandbox: Sandbox, preset: str, workload: str, tokens: list[int], rows: tuple[float, ...]
) -> None:
    ran = sandbox.run_benchmark(f"sim:{preset}?speed={SPEED}", "--workload", workload, *SHORT, "--quiet")
    assert ran.code == 0, ran
    assert "Serial and concurrent" in ran.out and "token ratio" in ran.out
    levels = sandbox.show_session()["levels"]
    assert [level["tokens_out"] for level in levels] == tokens
    assert at_most_published([level["out_tps_wall"] for level in levels], rows)
    for level in levels[1:]:
        serial = level["serial"]
        assert (serial["extrapolated"], serial["tasks"], level["token_ratio"]) == (False, level["c"], 1.0)
        assert level["wall_speedup"] == pytest.approx(serial["wall_s"] / level["wall_s"])
    again = sandbox.run("sessions", "show", "last", "--session-dir", str(sandbox.sessions))
    assert "Serial and concurrent" in again.out


def test_s0_rotated_levels_share_no_prompt(sandbox: Sandbox) -> None:
    """A session with warm-up and baseline sends each prompt once; only the baseline repeats them with new nonces."""
    words = ("--workload", "s0-swarm-coding", "--levels", "1,2,3", "--runs", "2", "--max-tokens", "40", "--seed", "4")
    endpoint = "sim:moe-tp1?speed=40&output.cv=0&output.echo=true"
    summary = run_and_summarise(sandbox, endpoint, *words, "--keep-text")
    journal = [json.loads(line) for line in (sandbox.session / "journal.jsonl").read_text().splitlines()]
    order = [(e["run"], e["c"]) for e in journal if e["kind"] == "stage" and e["phase"] == "level"]
    assert order == [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 1)]
    assert [level["runs"] for level in summary["levels"]] == [2, 2, 2]
    records = [e["record"] for e in journal if e["kind"] == "request"]
    answers = [(record.get("phase", "level"), record["text"]) for record in records]
    batches, serial, warmup = (
        [text for phase, text in answers if phase == expected] for expected in ("level", "serial", "warmup")
    )
    # The simulated model repeats the prompt, so that its answers identify the prompts.
    assert len(batches) == len(set(batches)) == 12
    assert sorted(serial) == sorted(text for text in batches if text in serial) and len(serial) == 10
    assert not set(warmup) & {*batches, *serial}


def test_s1_curve_and_summary(sandbox: Sandbox) -> None:
    words = ("--workload", "random-1k-1k", "--requests", "2C", "--complete", "--max-tokens", "100", "--seed", "1")
    ran = sandbox.run_benchmark(f"sim:qwen36-27b-2x?speed={SPEED}", *words, "--quiet")
    assert ran.code == 0, ran
    summary = sandbox.show_session()
    assert [(level["c"], level["n"], level["errors"]) for level in summary["levels"]] == [
        (1, 2, 0), (2, 4, 0), (4, 8, 0), (8, 16, 0),
    ]  # fmt: skip
    slots = summary["scaling"]["slots"]
    assert (slots["replicas"], slots["per_replica"]) == (2, 2)
    assert "queue forms at C=8" in summary["scaling"]["sentence"]
    assert "all 4 slots are taken" in " ".join(ran.out.split())


def test_s1_answers_rotate_through_three_lengths(sandbox: Sandbox) -> None:
    words = ("--workload", "s1-random-1k", "--levels", "3", "--requests", "3")
    (level,) = run_and_summarise(sandbox, "sim:qwen36-35b-moe?speed=100", *words)["levels"]
    requests = sandbox.detail()["requests"]
    assert sorted(r["tokens_out"] for r in requests if r["phase"] == "level") == [256, 1024, 4096]
    assert level["tokens_in"] == pytest.approx(3 * 1024, rel=0.02)


def test_s2_fifty_agents_with_extrapolated_serial_time(sandbox: Sandbox) -> None:
    words = ("--workload", "s2-swarm-50", "--seed", "1", "--serial-rates", "85.4,13.4")
    summary = run_and_summarise(sandbox, "sim:b70-swarm?speed=40", *words)
    (level,) = summary["levels"]
    assert level["c"] == level["ok"] == 50
    assert level["tokens_out"] == 50 * 512 and level["tokens_in"] == pytest.approx(50 * 1024, rel=0.02)
    assert at_most_published([level["out_tps_wall"], level["total_tps"]], (366, 1097), 40)
    assert level["serial"]["wall_s"] == pytest.approx(2510, rel=0.05)
    assert level["serial"]["extrapolated"] and "85.4 prompt and 13.4 output" in level["serial"]["how"]
    assert level["token_ratio"] is None


def test_s2_serial_time_from_a_sample(sandbox: Sandbox) -> None:
    (level,) = run_and_summarise(sandbox, "sim:b70-swarm?speed=80", "--workload", "s2-swarm-50", "--levels", "10")[
        "levels"
    ]
    assert (level["n"], level["serial"]["tasks"]) == (10, 1)
    assert level["serial"]["how"] == "extrapolated from 1 task of 10 run serially"


def test_s4_side_tasks_pass_in_reasoning(sandbox: Sandbox) -> None:
    knobs = "speed=40&output.cv=0&output.echo=true&reasoning.share=1"
    ran = sandbox.run_benchmark(
        f"sim:gpt-oss-20b-5slot?{knobs}", "--workload", "s4-mixed-fastapi", "--seed", "1", "--quiet"
    )
    assert ran.code == 0, ran
    assert "TTFT change" in ran.out and "pass in reasoning" in ran.out
    summary = sandbox.show_session()
    assert [t["c"] for t in summary["tasks"] if (t["type"], t["turn"]) == ("primary", 0)] == [1, 2, 3, 5]
    for level in summary["levels"]:
        assert set(level["verdicts"]) == {"pass in reasoning"} and level["pass_rate"] == 1.0


def test_s4_previews_can_be_turned_off(sandbox: Sandbox) -> None:
    words = ("--workload", "s4-mixed-fastapi", "--levels", "2")
    endpoint = "sim:qwen3-coder-5slot?speed=40&output.cv=0&output.echo=true"
    kept, none = (
        run_and_summarise(sandbox, endpoint, *words, *more)["session"]["id"] for more in ((), ("--no-previews",))
    )
    assert previews(sandbox.sessions / kept) and all(len(text) <= 400 for text in previews(sandbox.sessions / kept))
    assert not previews(sandbox.sessions / none)


def previews(directory: Path) -> list[str]:
    requests = json.loads((directory / "detail.json").read_text())["requests"]
    return [request["text"] for request in requests if request["text"]]


def test_s3_probe_history_statistics(sandbox: Sandbox) -> None:
    where = ("--session-dir", str(sandbox.sessions))
    words = ("--endpoint", "sim:gemma-31b-tp4?speed=10", "--workload", "s3-hourly-probe", "--max-tokens", "60")
    for _ in range(3):
        ran = sandbox.run("probe", *words, "--quiet", *where)
        assert ran.code == 0, ran
    (history,) = sandbox.json("probe", "--history", "--json", *where).values()
    rates = [rate for probe in history["probes"] for rate in probe["runs"]]
    assert len(rates) == 3
    assert (history["low"], history["rolling"][-1], history["high"]) == tuple(sorted(rates))
    # The latest probe is compared with those before it.
    before, latest = rates[:2], rates[2]
    assert history["median"] == pytest.approx(statistics.median(before))
    assert history["cv_between"] == pytest.approx(statistics.stdev(before) / statistics.mean(before))
    assert history["change"] == pytest.approx(latest / statistics.median(before) - 1)


def test_dag_tasks_run_after_their_dependencies(sandbox: Sandbox) -> None:
    summary = run_and_summarise(sandbox, "sim:moe-tp1?speed=40", "--workload", "orchestrator-dag", "--seed", "1")
    (level,) = summary["levels"]
    assert (level["c"], level["n"], level["ok"]) == (14, 14, 14)
    requests = sandbox.detail()["requests"]
    done = {kind: [r for r in requests if r["type"] == kind] for kind in ("plan", "worker", "summary")}
    assert [len(found) for found in done.values()] == [1, 12, 1]
    assert max(r["t_done_ns"] for r in done["plan"]) < min(r["t_sent_ns"] for r in done["worker"])
    assert max(r["t_done_ns"] for r in done["worker"]) < min(r["t_sent_ns"] for r in done["summary"])
    assert min(r["tokens_in"] for r in done["worker"]) > min(r["tokens_out"] for r in done["plan"])
