"""What servers say about single requests in the last chunk is read where it is sent, and null where not."""

from __future__ import annotations

from typing import Any

import pytest

from swarmtui.model.record import EngineTimings
from tests.loadgen.test_dialects import delta, payload, read, sample


def test_llamacpp_says_what_it_computed_and_drafted() -> None:
    found = sample("llama-server-usage.sse").engine
    assert found is not None
    assert (found.computed_tokens, found.local_cached_tokens, found.draft_tokens) == (1, 18, None)
    drafted = read(delta(content="a") + payload(choices=[], timings={"draft_n": 9, "draft_n_accepted": 6})).engine
    assert drafted is not None and (drafted.draft_tokens, drafted.accepted_tokens) == (9, 6)


# The last chunk of vLLM 0.32 with --enable-per-request-metrics.
VLLM_METRICS = {
    "time_to_first_token_ms": 31.052636999447714, "generation_time_ms": 47.23618400021223,
    "queue_time_ms": 0.0629780006420333, "mean_itl_ms": 11.809046000053058, "tokens_per_second": 63.86607865791871,
}  # fmt: skip


def test_vllm_metrics_of_a_request_are_read() -> None:
    usage = {"prompt_tokens": 491, "total_tokens": 496, "completion_tokens": 5}
    response = read(delta(content="a") + payload(choices=[], usage=usage, metrics=VLLM_METRICS))
    found = response.engine
    assert found is not None and found.queue_s == pytest.approx(0.062978e-3)
    assert (found.computed_tokens, found.draft_tokens) == (None, None)
    assert response.engine_prefill_s == pytest.approx(31.0526e-3, rel=1e-4)  # without the queue
    assert response.engine_decode_tps == pytest.approx(84.68, abs=0.01)
    assert response.usage_tokens == 5


def test_parts_of_later_vllm_versions_are_read_where_present() -> None:
    more = {
        "prefix_cache": {"num_computed_tokens": 107, "num_local_cached_tokens": 384, "num_external_cached_tokens": 0,
                         "num_block_evictions": 3, "num_prefill_chunks": 2},
        "speculative_decoding": {"mean_acceptance_length": 1.23, "acceptance_histogram": [39, 1, 0, 3],
                                 "num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129},
    }  # fmt: skip
    found = read(delta(content="a") + payload(choices=[], metrics=VLLM_METRICS | more)).engine
    assert found is not None
    assert (found.computed_tokens, found.local_cached_tokens, found.external_cached_tokens) == (107, 384, 0)
    assert (found.evicted_blocks, found.draft_tokens, found.accepted_tokens) == (3, 129, 10)


def test_sglang_meta_info_is_read() -> None:
    meta = {"id": "x", "queue_time": 0.25, "cached_tokens": 12, "spec_verify_ct": 20, "spec_accept_token_num": 31}
    response = read(delta(content="a") + payload(choices=[], meta_info=meta))
    assert response.engine == EngineTimings(queue_s=0.25, local_cached_tokens=12, accepted_tokens=31)
    assert response.cached_tokens == 12


@pytest.mark.parametrize(
    "odd", [None, 5, "x", [], {}, {"queue_time_ms": "soon"}, {"prefix_cache": 7}, {"queue_time": []}]
)
def test_odd_metrics_fail_no_request(odd: Any) -> None:
    response = read(
        delta(content="a") + payload(choices=[], metrics=odd, meta_info=odd, usage={"completion_tokens": 1})
    )
    assert response.error is None and response.usage_tokens == 1
    assert response.engine_prefill_s is None
