"""Metrics of all engines are mapped to the same fields; what is not reported stays None."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.http_client import HttpClient
from swarmtui.model.redaction import Secrets
from swarmtui.model.telemetry import ServerState
from swarmtui.telemetry.metrics import MetricsReader, metrics_url, parse_page, parse_prometheus
from tests.telemetry.text_server import Reply, TextReply, serving

SAMPLES = Path(__file__).parent / "samples"
VLLM = (SAMPLES / "vllm-0.32.txt").read_text()


def parse_ps(text: str) -> ServerState | None:
    return parse_page("http://127.0.0.1:11434/api/ps", text)


def test_vllm() -> None:
    state = parse_prometheus(VLLM)
    assert state is not None
    assert (state.engine, state.running, state.waiting, state.kv_use) == ("vLLM", 0.0, 0.0, 0.0)
    assert (state.prompt_tokens, state.output_tokens, state.cached_tokens) == (711.0, 6141.0, 0.0)
    assert (state.cache_queries, state.cache_hits, state.preemptions, state.finished) == (711.0, 0.0, 0.0, 41.0)
    assert state.drafts is None, "unknown is not zero"
    for histogram, total in ((state.ttft, 98.855), (state.queue, 94.803), (state.prefill, 2.647), (state.e2e, 196.784)):
        assert histogram is not None
        assert histogram.count == 41.0 and histogram.sum == pytest.approx(total, abs=1e-3)
        assert all(isfinite(bucket.le) for bucket in histogram.buckets), "JSON has no infinity"
        assert histogram.buckets[-1].count <= 41.0
    assert state.itl is not None and state.itl.count == 6100.0


def test_older_vllm_names() -> None:
    old = """vllm:gpu_cache_usage_perc{engine="0"} 0.5
vllm:gpu_prefix_cache_queries_total{engine="0"} 100.0
vllm:gpu_prefix_cache_hits_total{engine="0"} 40.0
vllm:time_per_output_token_seconds_sum{engine="0"} 2.0
vllm:time_per_output_token_seconds_count{engine="0"} 100.0
"""
    state = parse_prometheus(old)
    assert state is not None and state.itl is not None
    assert (state.kv_use, state.cache_queries, state.cache_hits, state.itl.count) == (0.5, 100.0, 40.0, 100.0)


def test_engines_behind_one_address_are_summed() -> None:
    two = VLLM + "\n".join(
        line.replace('engine="0"', 'engine="1"') for line in VLLM.splitlines() if 'engine="0"' in line
    ).replace('vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.0', 'vllm:kv_cache_usage_perc{engine="1"} 0.75')
    state = parse_prometheus(two + "\n")
    assert state is not None and state.ttft is not None
    assert (state.output_tokens, state.finished, state.ttft.count) == (12282.0, 82.0, 82.0)
    assert state.ttft.buckets[-1].count == 82.0
    assert state.kv_use == 0.75, "the maximum, not the sum"


def test_llama_prompt_tokens_include_cached_ones() -> None:
    state = parse_prometheus((SAMPLES / "llama-server.txt").read_text())
    assert state is not None
    assert (state.engine, state.running, state.waiting) == ("llama.cpp", 0.0, 0.0)
    assert (state.prompt_tokens, state.cached_tokens, state.output_tokens) == (38.0 + 199.0, 199.0, 322.0)
    assert (state.cache_queries, state.cache_hits) == (237.0, 199.0)
    assert state.prefill_seconds == pytest.approx(0.062784)
    assert state.ttft is None and state.kv_use is None


def test_sglang() -> None:
    state = parse_prometheus((SAMPLES / "sglang.txt").read_text())
    assert state is not None and state.ttft is not None and state.queue is not None
    assert (state.engine, state.running, state.waiting, state.kv_use) == ("SGLang", 12.0, 3.0, 0.28)
    assert (state.prompt_tokens, state.output_tokens) == (8128902.0, 7557572.0)
    assert (state.cache_queries, state.cache_hits) == (8128902.0, 100.0)
    assert (state.ttft.count, state.queue.sum) == (100.0, 50.0)
    assert state.preemptions is None, "the gauge of retracted requests is not a counter"


def test_tgi() -> None:
    state = parse_prometheus((SAMPLES / "tgi.txt").read_text())
    assert state is not None and state.queue is not None
    assert (state.engine, state.running, state.waiting, state.finished) == ("TGI", 16.0, 4.0, 30.0)
    assert (state.prompt_tokens, state.output_tokens, state.queue.sum) == (3000.0, 9000.0, 6.0)


def test_known_engine_name_is_kept_only_if_it_fits_the_page() -> None:
    names = ("simulator", "vLLM", "llama.cpp", "")
    states = [parse_prometheus(VLLM, name) for name in names]
    assert [state and state.engine for state in states] == ["simulator", "vLLM", "vLLM", "vLLM"]


def test_ollama_reports_only_memory() -> None:
    state = parse_ps('{"models":[{"name":"a","size_vram":5000},{"name":"b","size_vram":7000}]}')
    assert state is not None
    assert (state.engine, state.vram_bytes, state.running) == ("Ollama", 12000.0, None)
    idle = parse_ps('{"models":[]}')
    assert idle is not None and idle.vram_bytes is None
    assert parse_ps("<html>") is None and parse_ps('{"models":3}') is None
    assert parse_ps('{"else":' + 50_000 * "[") is None
    assert metrics_url("http://h:11434/", "Ollama") == "http://h:11434/api/ps"
    assert metrics_url("http://h:8000", "vLLM") == "http://h:8000/metrics"
    assert metrics_url("http://h:8000", "") == "http://h:8000/metrics"
    assert metrics_url("http://h:8000", "transformers") is None


def test_nan_is_not_measured() -> None:
    state = parse_prometheus("vllm:num_requests_running NaN\nvllm:num_requests_waiting 2\n")
    assert state is not None and state.running is None and state.waiting == 2.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>503</html>",
        "vllm",
        "vllm:num_requests_running{",
        "vllm:num_requests_running={}0\n",
        "process_cpu 1\n",
    ],
)
def test_page_without_known_metrics_is_none(text: str) -> None:
    assert parse_prometheus(text) is None


@given(st.data())
def test_no_text_raises(data: st.DataObject) -> None:
    """Use real lines, cut anywhere and joined with random text."""
    cut = data.draw(st.integers(0, len(VLLM)))
    parse_prometheus(VLLM[cut : cut + data.draw(st.integers(0, 400))] + data.draw(st.text(max_size=40)))
    name = data.draw(st.sampled_from(["vllm:num_requests_running", "vllm:prompt_tokens_total", "tgi_queue_size"]))
    parse_prometheus(name + data.draw(st.text(alphabet='{}"\\=,e+-.0 \n#x', max_size=30)) + "\n")


def test_failing_servers_are_reported_and_others_read() -> None:
    answers: dict[str, Reply] = {
        "/metrics": VLLM,
        "/guarded": TextReply(401, b"{}", {}),
        "/garbage": "\x00\x01 not metrics",
    }
    with serving(answers) as server:
        urls = [f"{server.url}{path}" for path in ("/metrics", "/guarded", "/garbage", "/absent")]
        reader = MetricsReader(urls, HttpClient((server.url,), Secrets(api_key="k")))
        states, problem = reader.read()
        reader.close()
    assert [state.url for state in states] == [urls[0]]
    assert problem == (
        f"{urls[1]}: HTTP 401, it needs an API key: --api-key-env or --header; "
        f"{urls[2]}: no metrics of a known engine; {urls[3]}: HTTP 404"
    )
    assert set(server.authorizations) == {"Bearer k"}


def test_engine_without_metrics_is_a_problem_in_words() -> None:
    reader = MetricsReader((), engine="transformers")
    assert reader.read() == ((), "transformers reports no metrics")
    reader.close()


def test_timestamp_and_unusual_labels_are_accepted() -> None:
    text = 'vllm:num_requests_running{model_name="a } 7 \\"b\\", {c"} 3 1794703056931\nvllm:num_requests_waiting  2 \n'
    state = parse_prometheus(text)
    assert state is not None and (state.running, state.waiting) == (3.0, 2.0)


def test_cached_names_do_not_cache_values() -> None:
    before, after = parse_prometheus(VLLM), parse_prometheus(VLLM.replace(" 6141.0", " 7000.0"))
    assert before is not None and after is not None
    assert (before.output_tokens, after.output_tokens) == (6141.0, 7000.0)


def test_sglang_repeated_series_count_once() -> None:
    """Drop the breakdown by priority and repeats by rank; sum over data-parallel engines."""
    lines = [
        'sglang:num_queue_reqs{dp_rank="0",priority="",tp_rank="0"} 5',
        'sglang:num_queue_reqs{dp_rank="0",priority="1",tp_rank="0"} 2',
        'sglang:num_queue_reqs{dp_rank="0",priority="2",tp_rank="0"} 3',
        'sglang:num_queue_reqs{dp_rank="0",priority="",tp_rank="1"} 5',
        'sglang:num_queue_reqs{dp_rank="1",priority="",tp_rank="2"} 7',
        'sglang:num_retracted_reqs_total{dp_rank="0",tp_rank="0"} 4',
        'sglang:cached_tokens_total{cache_source="device"} 10',
        'sglang:cached_tokens_total{cache_source="host"} 5',
        "sglang:prompt_tokens_total 100",
    ]
    state = parse_prometheus("\n".join(lines) + "\n")
    assert state is not None
    assert (state.waiting, state.preemptions, state.cache_hits) == (12.0, 4.0, 15.0)
