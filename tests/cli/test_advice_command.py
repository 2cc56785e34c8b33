"""`sessions advice` on runs of the simulator that trigger each rule."""

from __future__ import annotations

import re
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.cli.programs import Sandbox
from tests.sim.sim_process import simulator
from tests.telemetry.text_server import serving

KV = 'kind = "random"\nname = "kv"\ninput_tokens = {}\noutput_tokens = {}\n'


def advice(sandbox: Sandbox, endpoint: str, *arguments: str) -> dict[str, tuple[str, str]]:
    """The advice on a run with these options, by code."""
    ran = sandbox.run_benchmark(endpoint, "--warmup", "1", "--seed", "1", "--quiet", *arguments)
    assert ran.code == 0, ran
    found = sandbox.json("sessions", "advice", "--json", "--session-dir", str(sandbox.sessions))
    return {one["code"]: (one["sentence"], one["evidence"]) for one in found["next"]}


def test_more_streams_than_slots_only_queue(sandbox: Sandbox) -> None:
    found = advice(sandbox, "sim:moe-tp1", "--levels", "4,16", "--requests", "16", "--max-tokens", "48")
    sentence, evidence = found["more_slots"]
    start = "slots=8: more agents start at once, each writes about"
    assert re.fullmatch(rf"{start} \d+ tok/s instead of [\d.]+ if the total does not grow( and .*)?", sentence), (
        sentence
    )
    assert re.fullmatch(r"C=16 compared with C=4: [+−]\d % output tok/s, first token ×\d.* \(mean\); 4 slots", evidence)


def test_small_kv_cache_causes_preemptions(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "kv.toml").write_text(KV.format(200, 200))
    spec = "sim:moe-tp1?speed=2&max_model_len=512&kv_tokens=1200&slots=8"
    found = advice(sandbox, spec, "--levels", "8", "--requests", "2C", "--workload", str(tmp_path / "kv.toml"))
    sentence, evidence = found["preemptions"]
    assert sentence.startswith("the KV cache is too small for this many requests: use fewer slots")
    assert re.fullmatch(r"C=8: [1-9]\d* preemptions, KV cache up to \d+ % full", evidence)


def test_full_kv_cache_without_preemptions(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "kv.toml").write_text(KV.format(270, 20))
    spec = "sim:dense-tp1?slots=1&max_model_len=292&kv_tokens=292"
    found = advice(sandbox, spec, "--levels", "1", "--requests", "6", "--workload", str(tmp_path / "kv.toml"))
    assert re.fullmatch(r"C=1: KV cache up to (9[5-9]|100) % full, no preemptions counted", found["kv_cache"][1])


def test_low_draft_acceptance(sandbox: Sandbox) -> None:
    spec = "sim:moe-tp1?speed=2&speculative.tokens=5&speculative.acceptance=0.25"
    found = advice(sandbox, spec, "--levels", "2", "--requests", "6C", "--max-tokens", "96")
    sentence, evidence = found["speculative_decoding"]
    assert sentence == "few draft tokens are accepted at C=2: draft fewer, or none"
    assert re.fullmatch(r"C=2: \d % accepted of 5 drafted per step", evidence)


def test_prefix_cache_hits(sandbox: Sandbox) -> None:
    with simulator("moe-tp1?prefix_cache=true&speed=5") as sim:
        arguments = ("--levels", "2", "--requests", "4C", "--max-tokens", "8")
        assert "prefix_cache" not in advice(sandbox, sim.url, *arguments)
        sentence, evidence = advice(sandbox, sim.url, *arguments)["prefix_cache"]
    assert sentence.startswith("prefix cache hits bring the first token sooner: use another --seed")
    assert re.fullmatch(r"\d+ % cached", evidence)


def test_gpu_at_its_power_limit(sandbox: Sandbox) -> None:
    begun = time.monotonic()

    def exporter(handler: BaseHTTPRequestHandler) -> None:
        """A DCGM exporter of a GPU at its power limit of 349 W."""
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
            sandbox, "sim:moe-tp1?speed=2", "--levels", "4", "--requests", "8C", "--max-tokens", "64",
            "--gpu-metrics-url", f"{dcgm.url}/metrics",
        )  # fmt: skip
    sentence, evidence = found["power_limit"]
    assert sentence.startswith("the GPUs run at their power limit")
    assert re.fullmatch(r"C=4: clocks lowered 100 % of the time, \d{3} W", evidence)


def test_tensor_parallel_size_that_does_not_divide_the_heads(sandbox: Sandbox) -> None:
    arguments = ("--levels", "1", "--requests", "2", "--max-tokens", "8")
    flags = ("--tag", "heads=40", "--server-flags", "--tensor-parallel-size 3")
    found = advice(sandbox, "sim:moe-tp1?speed=5", *arguments, *flags, "--label", "first try")
    assert found["tensor_parallel"][0].startswith("TP=3 does not divide 40 heads")
    shown = sandbox.run("sessions", "advice", "--session-dir", str(sandbox.sessions))
    assert shown.out.startswith(f"session {sandbox.session.name} · first try · qwen3-coder-30b-a3b · coding")
    document = sandbox.json("sessions", "advice", "--json", "--session-dir", str(sandbox.sessions))
    (row,) = sandbox.list_sessions()
    assert document["session"] == {
        "id": sandbox.session.name, "label": "first try", "endpoint": row["endpoint"], "kind": "run",
        "model": "qwen3-coder-30b-a3b", "workload": "coding",
    }  # fmt: skip


def test_ordinary_run_gives_no_advice_on_the_server(sandbox: Sandbox) -> None:
    """Except what a busy machine gives: the client may be the bottleneck, and a quiet host is asked for."""
    found = advice(sandbox, "sim:moe-tp1?speed=2", "--levels", "1,4", "--requests", "2C", "--max-tokens", "16")
    assert set(found) <= {"client_limit", "higher_levels", "quiet_host"}
