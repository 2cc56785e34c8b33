"""Advice from runs that give cause for it: the words and the figures that people get, on the real simulator."""

from __future__ import annotations

import re
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.cli.programs import Place
from tests.sim.sim_process import simulator
from tests.telemetry.text_server import serving

KV = 'kind = "random"\nname = "kv"\ninput_tokens = {}\noutput_tokens = {}\n'


def advice(place: Place, endpoint: str, *words: str) -> dict[str, tuple[str, str]]:
    """What is said of a run with these options, by topic."""
    ran = place.measure(endpoint, "--warmup", "1", "--seed", "1", "--quiet", *words)
    assert ran.code == 0, ran
    found = place.json("sessions", "advice", "--json", "--session-dir", str(place.sessions))
    return {one["topic"]: (one["sentence"], one["evidence"]) for one in found}


def test_more_streams_than_seats_only_queue(place: Place) -> None:
    found = advice(place, "sim:moe-tp1?speed=2", "--levels", "4,8", "--requests", "3C", "--max-tokens", "48")
    sentence, evidence = found["queue"]
    assert sentence == "C beyond 4 only queues: send no more at once, or give the server more seats"
    assert re.fullmatch(r"C=8 against C=4: [+−]\d % output tok/s, TTFT ×\d.*; 4 seats", evidence)


def test_a_kv_cache_that_is_too_small_throws_requests_out(place: Place, tmp_path: Path) -> None:
    (tmp_path / "kv.toml").write_text(KV.format(200, 200))
    spec = "sim:moe-tp1?speed=2&max_model_len=512&kv_tokens=1200&seats=8"
    found = advice(place, spec, "--levels", "8", "--requests", "2C", "--workload", str(tmp_path / "kv.toml"))
    sentence, evidence = found["preemptions"]
    assert sentence.startswith("the KV cache is too small for so many: fewer seats")
    assert re.fullmatch(r"C=8: [1-9]\d* preemptions, KV cache up to \d+ % full", evidence)


def test_a_kv_cache_that_is_full_is_told_without_preemptions(place: Place, tmp_path: Path) -> None:
    (tmp_path / "kv.toml").write_text(KV.format(270, 20))
    spec = "sim:dense-tp1?seats=1&max_model_len=292&kv_tokens=292"
    found = advice(place, spec, "--levels", "1", "--requests", "6", "--workload", str(tmp_path / "kv.toml"))
    assert re.fullmatch(r"C=1: KV cache up to (9[5-9]|100) % full, no preemptions counted", found["KV full"][1])


def test_drafts_that_are_seldom_accepted(place: Place) -> None:
    spec = "sim:moe-tp1?speed=2&speculative.tokens=5&speculative.acceptance=0.25"
    found = advice(place, spec, "--levels", "2", "--requests", "6C", "--max-tokens", "96")
    sentence, evidence = found["speculative decoding"]
    assert sentence == "few drafts are accepted at C=2: draft fewer tokens, or none"
    assert re.fullmatch(r"C=2: \d % accepted of 5 drafted a step", evidence)


def test_seats_beyond_the_ceiling_bring_nothing(place: Place) -> None:
    spec = "sim:moe-tp1?speed=2&step_ms.a=2&step_ms.c=5&seats=16"
    words = ("--levels", "1,4,8,16", "--requests", "1C", "--max-tokens", "64", "--workload", "chat")
    found = advice(place, spec, *words)
    sentence, evidence = found["seats"]
    assert re.fullmatch(r"seats above \d bring next to nothing: they only make streams slower", sentence)
    assert re.search(r"a step takes [\d.]+ \+ 2\.\d+·b ms \(fit within \d+ %\): \d of 16 seats give 95 %", evidence)


def test_a_prefix_cache_that_knows_the_prompts(place: Place) -> None:
    with simulator("moe-tp1?prefix_cache=true&speed=5") as sim:
        words = ("--levels", "2", "--requests", "4C", "--max-tokens", "8")
        assert "prefix cache" not in advice(place, sim.url, *words)
        sentence, evidence = advice(place, sim.url, *words)["prefix cache"]
    assert sentence.startswith("the prefix cache contaminates TTFT: use another --seed")
    assert re.fullmatch(r"\d+ % from the cache", evidence)


def test_gpus_at_their_power_limit(place: Place) -> None:
    begun = time.monotonic()

    def exporter(handler: BaseHTTPRequestHandler) -> None:
        """A DCGM exporter of a GPU that takes 349 W and is not allowed more."""
        spent = int(349_000 * (time.monotonic() - begun))
        figures = {"POWER_USAGE": 349, "TOTAL_ENERGY_CONSUMPTION": spent, "CLOCK_THROTTLE_REASONS": 4}
        labels = 'gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA RTX"'
        body = "".join(f"DCGM_FI_DEV_{name}{{{labels}}} {value}\n" for name, value in figures.items()).encode()
        handler.send_response_only(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with serving({"/metrics": exporter}) as dcgm:
        found = advice(
            place, "sim:moe-tp1?speed=2", "--levels", "4", "--requests", "8C", "--max-tokens", "64",
            "--gpu-metrics-url", f"{dcgm.url}/metrics",
        )  # fmt: skip
    sentence, evidence = found["power-capped"]
    assert sentence.startswith("the GPUs run at their power limit")
    assert re.fullmatch(r"C=4: clocks lowered 100 % of the time, 3[45]\d W", evidence)


def test_heads_that_cannot_be_shared_out(place: Place) -> None:
    words = ("--levels", "1", "--requests", "2", "--max-tokens", "8")
    flags = ("--tag", "heads=40", "--server-flags", "--tensor-parallel-size 3")
    found = advice(place, "sim:moe-tp1?speed=5", *words, *flags)
    assert found["tensor parallel"][0].startswith("TP=3 does not divide 40 heads")


def test_a_calm_run_gives_no_cause(place: Place) -> None:
    """But for what a busy machine may say of the client itself."""
    found = advice(place, "sim:moe-tp1?speed=2", "--levels", "1,4", "--requests", "2C", "--max-tokens", "16")
    assert set(found) <= {"client-bound"}
