from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.compare import compare_pair
from swarmtui.model.schema import BadInput
from swarmtui.sessions.importers import read_foreign

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


def guide(streams: int, ok: int = 400) -> dict[str, Any]:
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


def saved(directory: Path, data: Any, name: str = "result.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(data))
    return path


def test_vllm_bench_serve_is_one_level_in_our_units(tmp_path: Path) -> None:
    summary = read_foreign(saved(tmp_path, VLLM))
    (level,) = summary.levels
    assert (level.c, level.n, level.ok, level.errors) == (4, 16, 16, 0)
    assert level.out_tps_wall == pytest.approx(225.4, abs=0.1)
    assert level.total_tps == pytest.approx(450.7, abs=0.1)
    assert level.ttft_s.p50 == pytest.approx(1.4)
    assert level.tpot_s.mean == pytest.approx(0.0151)
    assert level.icl_s.p50 == pytest.approx(0.015)
    assert (level.out_tps_steady, level.token_source) == (None, None)
    assert summary.session.endpoints[0].model == "qwen36-27b"
    assert "no steady ones" in summary.events[0].detail


def test_a_percentile_that_its_n_cannot_carry_is_not_taken_over(tmp_path: Path) -> None:
    """p99 of sixteen requests."""
    assert read_foreign(saved(tmp_path, VLLM)).levels[0].ttft_s.p99 is None
    many = VLLM | {"completed": 300}
    assert read_foreign(saved(tmp_path, many)).levels[0].ttft_s.p99 == pytest.approx(2.1)


def test_without_a_concurrency_it_is_said(tmp_path: Path) -> None:
    summary = read_foreign(saved(tmp_path, VLLM | {"max_concurrency": None}))
    assert summary.levels[0].c == 16
    assert any("no max_concurrency" in event.detail for event in summary.events)


def test_guidellm_has_a_level_for_each_benchmark(tmp_path: Path) -> None:
    summary = read_foreign(saved(tmp_path, {"metadata": {}, "benchmarks": [guide(8), guide(1), {"metrics": {}}]}))
    assert [level.c for level in summary.levels] == [1, 8]
    level = summary.levels[1]
    assert (level.ok, level.errors, level.wall_s) == (400, 2, 60.0)
    assert level.tokens_out == 20_000
    assert level.out_tps_wall == pytest.approx(20_000 / 60)
    assert level.ttft_s.p50 == pytest.approx(0.12)
    assert level.ttft_s.p99 == pytest.approx(0.36)
    assert level.e2e_s.mean == pytest.approx(0.5)
    assert any("left out" in event.detail for event in summary.events)


def test_aiperf_reads_its_own_units(tmp_path: Path) -> None:
    (level,) = read_foreign(saved(tmp_path, AIPERF)).levels
    assert (level.c, level.ok, level.errors) == (64, 640, 3)
    assert level.ttft_s.p50 == pytest.approx(0.09)
    assert level.ttft_s.p99 == pytest.approx(0.3)
    assert level.out_tps_wall == pytest.approx(640 * 51.2 / 12.34, rel=1e-3)
    older = {
        "records": {k: v for k, v in AIPERF.items() if k != "input_config"},
        "input_config": AIPERF["input_config"],
    }
    assert read_foreign(saved(tmp_path, older)).levels[0] == level


def test_two_files_of_one_tool_and_length_may_be_compared_and_say_that_n_is_one(tmp_path: Path) -> None:
    a = read_foreign(saved(tmp_path, VLLM, "a.json"))
    b = read_foreign(saved(tmp_path, VLLM | {"total_output_tokens": 16500, "duration": 60.0}, "b.json"))
    pair = compare_pair(a, b)
    assert pair.refused == ()
    assert pair.sentence == "C=4: +22.0 % output tok/s, undecided (1 v 1 runs)"
    other = read_foreign(saved(tmp_path, VLLM | {"total_output_tokens": 4096}, "c.json"))
    assert compare_pair(a, other).refused[0].startswith("different workloads")


@pytest.mark.parametrize("data", [[], {}, {"benchmarks": []}, {"benchmarks": [1]}, {"records": 5}, "text", None])
def test_other_json_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(BadInput, match=r"result\.json"):
        read_foreign(saved(tmp_path, data))


def test_what_is_no_json_or_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(BadInput, match="cannot be read"):
        read_foreign(path)
    path.write_bytes(b"\xff{")
    with pytest.raises(BadInput, match="not valid JSON"):
        read_foreign(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(VLLM)), json_values)
def test_a_field_of_any_kind_never_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    path = saved(tmp_path_factory.mktemp("odd"), VLLM | {key: value})
    try:
        read_foreign(path)
    except BadInput as error:
        assert str(path) in str(error)
