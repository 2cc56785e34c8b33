from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.model.base import BadInput
from swarmtui.sessions.importers import import_result

VLLM = {
    "date": "20260501-101500", "backend": "openai", "model_id": "qwen36-27b", "num_prompts": 16, "request_rate": "inf",
    "max_concurrency": 4, "duration": 72.7, "completed": 16, "failed": 0, "total_input_tokens": 16384,
    "total_output_tokens": 16384, "request_throughput": 0.22, "output_throughput": 225.4,
    "total_token_throughput": 450.7, "mean_ttft_ms": 1440.0, "median_ttft_ms": 1400.0, "p99_ttft_ms": 2100.0,
    "mean_tpot_ms": 15.1, "median_tpot_ms": 15.0, "p99_tpot_ms": 15.9, "mean_itl_ms": 15.1, "median_itl_ms": 15.0,
    "p99_itl_ms": 31.0,
}  # fmt: skip


def stats(value: float) -> dict[str, Any]:
    table = {"p50": value, "p90": 2 * value, "p99": 3 * value}
    return {"successful": {"mean": value, "median": value, "min": value, "max": 3 * value, "percentiles": table}}


def guidellm_benchmark(streams: int, ok: int = 400) -> dict[str, Any]:
    return {
        "config": {"strategy": {"type_": "concurrent", "streams": streams}},
        "start_time": 1000.0,
        "end_time": 1060.0,
        "metrics": {
            "request_totals": {"successful": ok, "errored": 2, "incomplete": 0, "total": ok + 2},
            "request_latency": stats(0.5),
            "time_to_first_token_ms": stats(120.0),
            "inter_token_latency_ms": stats(10.0),
            "output_tokens_per_second": stats(340.0),
            "prompt_token_count": stats(256.0),
            "output_token_count": stats(50.0),
        },
    }


AIPERF = {
    "request_count": {"unit": "requests", "avg": 640.0},
    "error_request_count": {"unit": "requests", "avg": 3.0},
    "benchmark_duration": {"unit": "sec", "avg": 12.34},
    "time_to_first_token": {"unit": "ms", "avg": 100.0, "p50": 90.0, "p90": 150.0, "p99": 300.0, "max": 310.0},
    "inter_token_latency": {"unit": "ms", "avg": 10.0, "p50": 9.5, "p99": 15.0},
    "request_latency": {"unit": "ms", "avg": 200.0, "p50": 180.0, "p99": 400.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 2655.0},
    "output_sequence_length": {"unit": "tokens", "avg": 51.2},
    "input_sequence_length": {"unit": "tokens", "avg": 256.0},
    "input_config": {"loadgen": {"concurrency": 64}, "endpoint": {"model_names": ["qwen3-0.6b"]}},
}


# Versions 0.10 to 0.13: the load is in phases, the model in a list, and output tokens include reasoning.
AIPERF_0_13 = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "request_latency": {"unit": "ms", "avg": 2000.0, "p50": 1900.0, "p90": 2600.0, "p99": 3000.0, "min": 400.0,
                        "max": 3100.0, "std": 500.0, "count": 96, "sum": 192000.0},
    "request_count": {"unit": "requests", "avg": 96.0},
    "time_to_first_token": {"unit": "ms", "avg": 230.0, "p50": 180.0, "p90": 400.0, "p95": 670.0, "p99": 690.0,
                            "min": 75.0, "max": 694.0, "count": 96},
    "time_to_first_output_token": {"unit": "ms", "avg": 900.0, "p50": 800.0, "count": 96},
    "inter_token_latency": {"unit": "ms", "avg": 11.8, "p50": 12.0, "count": 96},
    "inter_chunk_latency": {"unit": "ms", "avg": 12.0, "p50": 9.0, "p99": 118.0, "min": 0.0, "max": 218.0,
                            "count": 52000},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 1172.0},
    "output_sequence_length": {"unit": "tokens", "avg": 540.0, "count": 96},
    "input_sequence_length": {"unit": "tokens", "avg": 3700.0, "count": 96},
    "total_output_tokens": {"unit": "tokens", "avg": 30000.0},
    "total_reasoning_tokens": {"unit": "tokens", "avg": 21840.0},
    "total_isl": {"unit": "tokens", "avg": 355200.0},
    "total_osl": {"unit": "tokens", "avg": 51840.0},
    "benchmark_duration": {"unit": "sec", "avg": 44.5},
    "input_config": {
        "models": {"items": [{"name": "qwen3.6"}]},
        "endpoint": {"urls": ["http://localhost:8000"], "type": "chat", "streaming": True},
        "phases": [
            {"name": "warmup", "type": "concurrency", "exclude_from_results": True, "requests": 2, "concurrency": 2},
            {"name": "profiling", "type": "concurrency", "requests": 96, "concurrency": 16},
        ],
    },
    "was_cancelled": False,
    "error_summary": [],
    "start_time": "2026-07-03T05:21:36.274997",
}  # fmt: skip


def write_result(directory: Path, data: Any, name: str = "result.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(data))
    return path


def test_vllm_result_becomes_one_level(tmp_path: Path) -> None:
    summary = import_result(write_result(tmp_path, VLLM))
    (level,) = summary.levels
    assert (level.c, level.n, level.ok, level.errors) == (4, 16, 16, 0)
    assert level.out_tps_wall == pytest.approx(225.4, abs=0.1)
    assert level.total_tps == pytest.approx(450.7, abs=0.1)
    assert level.ttft_s.p50 == pytest.approx(1.4)
    assert level.tpot_s.p50 == pytest.approx(0.015)
    assert level.icl_s.p50 == pytest.approx(0.015)
    assert (level.out_tps_steady, level.token_source) == (None, None)
    assert summary.session.endpoints[0].model == "qwen36-27b"
    assert "no steady rates" in summary.events[0].detail


def test_stream_rate_is_weighted_by_tokens_as_in_levels(tmp_path: Path) -> None:
    """Σ (n − 1) / Σ (e2e − TTFT), and TPOT its inverse; null without e2e: the mean over requests is another figure."""
    (level,) = import_result(write_result(tmp_path, AIPERF_0_13)).levels
    assert level.per_stream_tps.mean == pytest.approx((51840 - 96) / (96 * (2.0 - 0.23)))
    assert level.by_run[0].per_stream_tps == level.per_stream_tps.mean
    assert level.tpot_s.mean == pytest.approx(1 / (level.per_stream_tps.mean or 1.0))
    summary = import_result(write_result(tmp_path, VLLM))
    (without_e2e,) = summary.levels
    assert (without_e2e.per_stream_tps.mean, without_e2e.by_run[0].per_stream_tps) == (None, None)
    assert without_e2e.tpot_s.mean is None and without_e2e.tpot_s.p50 == pytest.approx(0.015)
    assert "stream and mean TPOT are null" in summary.events[-1].detail


def test_percentile_with_too_few_samples_is_dropped(tmp_path: Path) -> None:
    """p99 needs 299 requests."""
    assert import_result(write_result(tmp_path, VLLM)).levels[0].ttft_s.p99 is None
    many = VLLM | {"completed": 300}
    assert import_result(write_result(tmp_path, many)).levels[0].ttft_s.p99 == pytest.approx(2.1)


def test_missing_concurrency_is_noted(tmp_path: Path) -> None:
    summary = import_result(write_result(tmp_path, VLLM | {"max_concurrency": None}))
    assert summary.levels[0].c == 16
    assert any("no concurrency given" in event.detail for event in summary.events)


def test_vllm_appended_results_become_levels_and_runs(tmp_path: Path) -> None:
    """`--append-result` writes one result per line, with NaN for undefined numbers."""
    eight = VLLM | {"max_concurrency": 8, "duration": 60.0, "median_tpot_ms": float("nan")}
    path = tmp_path / "results.json"
    path.write_text("\n".join(json.dumps(result) for result in (VLLM, eight, VLLM | {"duration": 80.0})))
    summary = import_result(path)
    assert [(level.c, level.runs) for level in summary.levels] == [(4, 2), (8, 1)]
    four, eight_again = summary.levels
    assert four.out_tps_wall == pytest.approx(2 * 16384 / 152.7)
    assert [run.out_tps_wall for run in four.by_run] == [pytest.approx(16384 / 72.7), pytest.approx(16384 / 80)]
    assert four.ttft_s.mean == pytest.approx(1.44) and (four.ttft_s.p50, four.n) == (None, 32)
    assert eight_again.tpot_s.p50 is None
    assert any("measured 2 times" in event.detail for event in summary.events)


def test_vllm_with_a_rate_is_an_open_loop(tmp_path: Path) -> None:
    older = {key: value for key, value in VLLM.items() if key != "failed"}
    older |= {"max_concurrency": None, "request_rate": 2.5, "num_prompts": 20, "max_concurrent_requests": 7}
    summary = import_result(write_result(tmp_path, older))
    (level,) = summary.levels
    assert (level.c, level.load, level.rate, level.errors) == (7, "open", 2.5, 4)
    assert any("2.5 requests/s" in event.detail for event in summary.events)
    assert summary.session.created == "2026-05-01T10:15:00"


def test_guidellm_benchmarks_become_levels(tmp_path: Path) -> None:
    summary = import_result(
        write_result(
            tmp_path, {"metadata": {}, "benchmarks": [guidellm_benchmark(8), guidellm_benchmark(1), {"metrics": {}}]}
        )
    )
    assert [level.c for level in summary.levels] == [1, 8]
    level = summary.levels[1]
    assert (level.ok, level.errors, level.wall_s) == (400, 2, 60.0)
    assert level.tokens_out == 20_000
    assert level.out_tps_wall == pytest.approx(20_000 / 60)
    assert level.ttft_s.p50 == pytest.approx(0.12)
    assert level.ttft_s.p99 == pytest.approx(0.36)
    assert level.e2e_s.mean == pytest.approx(0.5)
    assert any("skipped" in event.detail for event in summary.events)


def test_guidellm_versions_give_the_same_levels(tmp_path: Path) -> None:
    """Counts and model: up to 0.3 in the benchmark and the worker, since 0.4 in the metrics and the backend."""
    now = guidellm_benchmark(4)
    now["config"]["backend"] = {"target": "http://localhost:8000", "model": "qwen3"}
    now["duration"], now["start_time"] = 60.0, 1772470696.7
    older: dict[str, Any] = {"args": {"strategy": now["config"]["strategy"]}, "worker": {"backend_model": "qwen3"}}
    older |= {"start_time": 1772470696.7, "duration": 60.0, "request_totals": now["metrics"]["request_totals"]}
    older["metrics"] = {key: value for key, value in now["metrics"].items() if key != "request_totals"}
    first, second = (
        import_result(write_result(tmp_path, {"benchmarks": [one]}, f"{name}.json"))
        for name, one in (("a", now), ("b", older))
    )
    assert first.levels == second.levels
    for summary in (first, second):
        assert summary.session.endpoints[0].model == "qwen3"
        assert summary.session.created == "2026-03-02T16:58:16Z"


def test_guidellm_sweep_has_closed_and_open_loops(tmp_path: Path) -> None:
    """Requests that are cancelled at the end of a timed benchmark are noted."""
    kinds: list[dict[str, Any]] = [
        {"type_": "synchronous"},
        {"type_": "throughput", "max_concurrency": 64},
        {"type_": "constant", "rate": 1.5},
        {"type_": "constant", "rate": 1.7},
    ]
    made = []
    for kind in kinds:
        one = guidellm_benchmark(1)
        one["config"]["strategy"] = kind
        one["metrics"] |= {"request_concurrency": stats(3.2)}
        made.append(one)
    made[1]["metrics"]["request_totals"]["incomplete"] = 9
    summary = import_result(write_result(tmp_path, {"benchmarks": made}))
    assert [(level.c, level.rate, level.unfinished) for level in summary.levels] == [
        (1, None, 0),
        (64, None, 9),
        (3, 1.5, 0),
        (3, 1.7, 0),
    ]
    notes = " ".join(event.detail for event in summary.events)
    assert "open loop at 1.5 requests/s" in notes and "9 requests were cancelled" in notes


def test_latencies_of_zero_count_as_not_measured(tmp_path: Path) -> None:
    """GuideLLM writes zeros for answers that were not streamed."""
    one = guidellm_benchmark(2)
    one["metrics"]["time_to_first_token_ms"] = stats(0.0)
    (level,) = import_result(write_result(tmp_path, {"benchmarks": [one]})).levels
    assert (level.ttft_s.n, level.ttft_s.mean) == (0, None)


def test_aiperf_phases_and_reasoning_tokens(tmp_path: Path) -> None:
    summary = import_result(write_result(tmp_path, AIPERF_0_13))
    (level,) = summary.levels
    assert (level.c, level.rate, level.complete) == (16, None, True)
    assert (level.tokens_in, level.tokens_out) == (355_200, 51_840)
    assert level.out_tps_wall == pytest.approx(51_840 / 44.5)
    assert level.ttft_s.p95 == pytest.approx(0.67) and level.ttft_s.p99 is None
    assert level.ttfo_s.p50 == pytest.approx(0.8)
    assert level.icl_s.p99 == pytest.approx(0.118) and level.longest_stall_s == pytest.approx(0.218)
    assert summary.session.endpoints[0].model == "qwen3.6"
    assert summary.session.created.startswith("2026-07-03T05:21:36")


def test_aiperf_token_count_that_differs_from_the_server_is_noted(tmp_path: Path) -> None:
    differing = AIPERF_0_13 | {"total_usage_completion_tokens": {"unit": "tokens", "avg": 48000.0}}
    events = import_result(write_result(tmp_path, differing)).events
    assert any("counted 51,840 output tokens, the server 48,000" in event.detail for event in events)


def test_stopped_aiperf_run_is_incomplete(tmp_path: Path) -> None:
    cut = AIPERF_0_13 | {"is_complete": False, "incomplete_reason": "records stalled"}
    summary = import_result(write_result(tmp_path, cut))
    assert not summary.levels[0].complete
    assert any("stopped early: records stalled" in event.detail for event in summary.events)


def test_aiperf_units_are_converted(tmp_path: Path) -> None:
    (level,) = import_result(write_result(tmp_path, AIPERF)).levels
    assert (level.c, level.ok, level.errors) == (64, 640, 3)
    assert level.ttft_s.p50 == pytest.approx(0.09)
    assert level.ttft_s.p99 == pytest.approx(0.3)
    assert level.out_tps_wall == pytest.approx(640 * 51.2 / 12.34, rel=1e-3)
    older = {
        "records": {k: v for k, v in AIPERF.items() if k != "input_config"},
        "input_config": AIPERF["input_config"],
    }
    assert import_result(write_result(tmp_path, older)).levels[0] == level


def test_files_with_equal_token_lengths_are_comparable(tmp_path: Path) -> None:
    a = import_result(write_result(tmp_path, VLLM, "a.json"))
    b = import_result(write_result(tmp_path, VLLM | {"total_output_tokens": 16500, "duration": 60.0}, "b.json"))
    pair = compare_pair(a, b)
    assert pair.refused == ()
    assert pair.sentence.startswith(
        "not sure yet with 4 agents: 225 → 275 tok/s, +22 % may be noise: 1 v 1 runs, 4 of each are needed"
    )
    other = import_result(write_result(tmp_path, VLLM | {"total_output_tokens": 4096}, "c.json"))
    assert compare_pair(a, other).refused[0].code == "workload"
    silent = import_result(write_result(tmp_path, VLLM | {"total_output_tokens": 0}, "d.json"))
    assert silent.session.workload_digest not in ("", a.session.workload_digest)


@pytest.mark.parametrize("data", [[], {}, {"benchmarks": []}, {"benchmarks": [1]}, {"records": 5}, "text", None])
def test_unknown_json_is_rejected(tmp_path: Path, data: Any) -> None:
    with pytest.raises(BadInput, match=r"result\.json"):
        import_result(write_result(tmp_path, data))


def test_unreadable_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(BadInput, match="cannot be read"):
        import_result(path)
    path.write_bytes(b"\xff{")
    with pytest.raises(BadInput, match="not valid JSON"):
        import_result(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.sampled_from([VLLM, AIPERF_0_13, guidellm_benchmark(4)]), st.data(), json_values)
def test_any_value_in_any_field_is_handled(
    tmp_path_factory: pytest.TempPathFactory, whole: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    """A field at the top or one level below gets another value."""
    key = data.draw(st.sampled_from(sorted(whole)))
    inner = data.draw(st.sampled_from(sorted(whole[key]))) if isinstance(whole[key], dict) else None
    odd = whole | {key: value if inner is None else whole[key] | {inner: value}}
    path = write_result(tmp_path_factory.mktemp("odd"), {"benchmarks": [odd]} if "metrics" in whole else odd)
    try:
        import_result(path)
    except BadInput as error:
        assert str(path) in str(error)
