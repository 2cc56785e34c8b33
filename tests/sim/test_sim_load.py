"""The simulator under load: metrics, slots, failures, and the simulated GPU."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sim.sim_process import TIMEOUT_S, Sim, events_of, simulator

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def test_metrics_match_the_responses() -> None:
    with simulator("qwen36-27b-2x?speed=50") as sim:
        before = sim.metrics()

        def ask(number: int) -> tuple[int, int]:
            usage = sim.post(CHAT, sim.chat(f"question {number}", max_tokens=20 + number, ignore_eos=True))["usage"]
            return usage["prompt_tokens"], usage["completion_tokens"]

        with ThreadPoolExecutor(8) as pool:
            used = list(pool.map(ask, range(16)))
        sim.post(CHAT, sim.chat("the last one"))
        seen = sim.metrics()
    natural = seen["vllm:generation_tokens_total"] - sum(out for _, out in used)
    assert [out for _, out in used] == [20 + number for number in range(16)]
    assert natural > 0
    assert before["vllm:generation_tokens_total"] == 0
    assert seen["vllm:prompt_tokens_total"] > sum(prompt for prompt, _ in used)
    assert seen['vllm:request_success_total{finished_reason="length"}'] == 16
    assert seen['vllm:request_success_total{finished_reason="stop"}'] == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert seen[f"vllm:{name}_seconds_count"] == 17
        assert seen[f'vllm:{name}_seconds_bucket{{le="+Inf"}}'] == 17
    assert seen["vllm:inter_token_latency_seconds_count"] == seen["vllm:generation_tokens_total"] - 17
    assert seen["vllm:request_queue_time_seconds_sum"] > 0
    assert seen["vllm:num_requests_running"] == seen["vllm:num_requests_waiting"] == 0
    assert seen["vllm:num_preemptions_total"] == 0


def test_replicas_have_separate_labels() -> None:
    with simulator("qwen36-27b-2x") as sim:
        text = sim.call("GET", "/metrics")[1]
    for engine in "01":
        assert f'vllm:num_requests_running{{engine="{engine}",model_name="qwen36-27b"}} 0.0' in text
        assert f'num_gpu_blocks="2500",engine="{engine}"}} 1.0' in text


def test_disconnected_client_frees_its_slot() -> None:
    with simulator("moe-tp1?slots=1") as sim:
        hog = sim.open(CHAT, sim.chat(max_tokens=15000, ignore_eos=True, stream=True))
        sim.until(lambda seen: seen["vllm:generation_tokens_total"] > 0)
        with sim.open(CHAT, sim.chat(max_tokens=3, stream=True)) as waiting:
            seen = sim.until(lambda seen: seen["vllm:num_requests_waiting"] == 1)
            assert seen["vllm:num_requests_running"] == 1
            assert seen["vllm:kv_cache_usage_perc"] > 0
            hog.close()
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                received += waiting.recv(65536)
        seen = sim.metrics()
    assert received.startswith(b"HTTP/1.1 200 OK") and b"[DONE]" in received
    assert seen['vllm:request_success_total{finished_reason="abort"}'] == 1
    assert seen['vllm:request_success_total{finished_reason="length"}'] == 1
    assert seen["vllm:generation_tokens_total"] < 15000


def outcome(sim: Sim, number: int) -> str:
    """Return how one request ends for the client."""
    try:
        status, text, _ = sim.call("POST", CHAT, sim.chat(f"question {number}", max_tokens=10, stream=True))
    except ConnectionResetError:
        return "reset"
    except http.client.IncompleteRead:
        return "cut"
    if status != 200:
        return f"http_{status}"
    *events, last = events_of(text)
    assert last == "[DONE]"
    return "error_event" if "error" in json.loads(events[-1]) else "ok"


def test_failure_rates_match_the_preset() -> None:
    shares = {"http_500": 0.2, "http_503": 0.05, "reset": 0.1, "cut": 0.1, "error_event": 0.15}
    knobs = "&".join(f"failures.{name}={share}" for name, share in shares.items())
    with simulator(f"moe-tp1?speed=50&{knobs}") as sim:
        seen = Counter(outcome(sim, number) for number in range(100))
        counted = sim.metrics()
    for name, share in {**shares, "ok": 0.4}.items():
        assert seen[name] == pytest.approx(100 * share, abs=2), name
    failed_within = seen["reset"] + seen["cut"] + seen["error_event"]
    assert counted['vllm:request_success_total{finished_reason="error"}'] == failed_within
    assert counted["vllm:num_requests_running"] == 0


def test_failure_comes_after_half_of_the_tokens() -> None:
    with simulator("moe-tp1?speed=50&failures.error_event=1") as sim:
        status, text, _ = sim.call("POST", CHAT, sim.chat(max_tokens=10, ignore_eos=True, stream=True))
        whole, _, _ = sim.call("POST", CHAT, sim.chat(max_tokens=10, ignore_eos=True))
    events = [json.loads(event) for event in events_of(text)[:-1]]
    assert (status, whole) == (200, 500)
    assert len([e for e in events if "choices" in e and e["choices"][0]["delta"]["content"]]) == 5
    assert events[-1]["error"]["code"] == 500


def test_stall_pauses_the_stream() -> None:
    with simulator("moe-tp1?speed=1000&failures.stall=1&failures.stall_s=1000") as sim:
        with sim.open(CHAT, sim.chat(max_tokens=8, ignore_eos=True, stream=True)) as sock:
            received = b""
            sim.until(lambda seen: seen["vllm:generation_tokens_total"] == 8)
            while b'"content":""' not in received:
                received += sock.recv(65536)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                received += sock.recv(65536)
            assert b'finish_reason":"length' not in received
            sock.settimeout(TIMEOUT_S)
            while not received.endswith(b"0\r\n\r\n"):
                received += sock.recv(65536)
        assert received.count(b'"delta":{"content":" ') + received.count(b'"delta":{"content":".') == 8


def test_gpu_metrics_follow_the_load_and_are_marked_simulated() -> None:
    with simulator("moe-tp2-nvlink") as sim:
        idle = sim.metrics("/gpu/metrics")
        text = sim.call("GET", "/gpu/metrics")[1]
        socks = [sim.open(CHAT, sim.chat(f"{n}", max_tokens=9000, ignore_eos=True, stream=True)) for n in range(4)]
        sim.until(lambda seen: seen["vllm:generation_tokens_total"] > 200)
        busy = sim.metrics("/gpu/metrics")
        for sock in socks:
            sock.close()
    assert text.count('modelName="SIMULATED NVIDIA GeForce RTX 3090"') == 2 * 7
    for name in ("POWER_USAGE", "GPU_UTIL", "SM_CLOCK", "TOTAL_ENERGY_CONSUMPTION", "FB_USED"):
        assert busy[f"DCGM_FI_DEV_{name}"] > idle[f"DCGM_FI_DEV_{name}"], name
    assert busy["DCGM_FI_DEV_FB_USED"] + busy["DCGM_FI_DEV_FB_FREE"] == 2 * 24 * 1024
    assert idle["DCGM_FI_DEV_POWER_USAGE"] == pytest.approx(50, abs=1)
