"""The limits of a session beside its levels: how much was reached, and what binds each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from swarmtui.analysis.answer.answer import answer
from swarmtui.analysis.limits.slo import parse_slo
from swarmtui.analysis.speed_of_light.fit import fit_steps, predicted_step
from swarmtui.analysis.speed_of_light.gpus import gpu_named
from swarmtui.analysis.speed_of_light.session import served_as, session_limits
from swarmtui.analysis.speed_of_light.step import decode_step, kv_bytes
from swarmtui.model.findings import Slots
from swarmtui.model.session import Level, RateSummary, Spread
from swarmtui.model.session_tags import model_facts_from_tags
from swarmtui.model.speed_of_light import LevelLimit, ModelShape, Serving, SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer, Energy, Gpu, ServerState, TtftSplit
from swarmtui.report.answer import answer_rows
from tests.analysis.level_builders import level, summary
from tests.analysis.test_speed_of_light import DENSE_8B, H200, qwen3_coder_awq

GPU = Gpu(uuid="a", index=0, name="NVIDIA H200", memory_bandwidth=H200.bandwidth)
# 15.3 GB in 4.63 ms: a step of one stream on an H200.
STEP_S = 4.63e-3


def served(model: ModelShape | None = DENSE_8B, **fields: Any) -> DiscoveredServer:
    return DiscoveredServer(url="http://127.0.0.1:8000", engine="vLLM", shape=model, **fields)


def decoding(c: int, step_s: float = STEP_S, *, prompt: int = 2000, n: int = 16, **fields: Any) -> Level:
    """Build a level whose streams decode all the time: prompts of `prompt` tokens, answers of 100."""
    tokens = {"tokens_in": prompt * n, "tokens_out": 100 * n}
    rates = {"tps": c / step_s, "tpot": step_s, "stream": 1 / step_s}
    return level(c, n=n, **(rates | tokens | fields))


def found_at(
    levels: Sequence[Level],
    server: DiscoveredServer | None = None,
    slots: Slots | None = None,
    counters: Mapping[int, ServerState] | None = None,
    gpus: Sequence[Gpu] = (GPU,),
) -> LevelLimit:
    """Return the limit of the last level."""
    return session_limits(levels, [server or served()], gpus, slots, counters or {}, None).levels[-1]


def test_share_of_the_limit_is_the_least_time_of_a_step_over_the_measured_one() -> None:
    found = found_at([decoding(1)])
    hard = decode_step(DENSE_8B, H200, Serving(context=2050), 1, hard=True).seconds or 0.0
    assert found.share == pytest.approx(hard / STEP_S)
    assert found.share == pytest.approx(0.686, abs=0.002)
    assert (found.binds, found.because) == ("bandwidth", "15.3 GB per step, 69 % of the memory bandwidth")


def test_s0_reaches_37_percent_of_the_limit_with_one_agent() -> None:
    card = Gpu(uuid="a", index=0, name="NVIDIA GeForce RTX 3090", memory_bandwidth=936.1e9)
    found = found_at([decoding(1, 1 / 168, prompt=0)], served(qwen3_coder_awq()), gpus=[card])
    assert found.share == pytest.approx(0.37, abs=0.005)


def test_one_agent_says_its_share_of_the_limit() -> None:
    light = session_limits([decoding(1)], [served()], [GPU], None, {}, None)
    made = msgspec.structs.replace(summary([decoding(1, ttft=0.03)]), speed_of_light=light)
    made = msgspec.structs.replace(made, answer=answer(made, None, "", {}))
    assert dict(answer_rows(made))["One agent"] == "first token in 30 ms, then 216 tok/s (69 % of the limit)"


# six arranged cases, and what is not known


def test_slots_bind_where_requests_wait_for_them() -> None:
    found = found_at([decoding(8, queued=3.4)], slots=Slots(per_replica=4))
    assert (found.binds, found.because) == ("slots", "all 4 slots are taken, 3.4 requests wait")
    assert found.batch == 4


def test_kv_cache_binds_where_it_is_full_or_preempts() -> None:
    full = {8: ServerState(engine="", kv_use=0.97)}
    assert found_at([decoding(8)], counters=full).because == "the KV cache is 97 % full"
    preempts = {8: ServerState(engine="", kv_use=0.9, preemptions=12.0)}
    found = found_at([decoding(8)], counters=preempts)
    assert (found.binds, found.because) == ("kv_capacity", "12 preemptions")


def test_prompts_bind_where_reading_them_takes_most_of_the_time() -> None:
    """One agent reads 8,000 tokens in a second; eight send 6,400 per second."""
    levels = [decoding(1, prompt=8000, ttft=1.0), decoding(8, 0.06, prompt=8000, tps=80.0, n=16)]
    found = found_at(levels)
    assert found.binds == "prefill"
    assert found.because == "prompts take 80 % of the time: 6,400 prompt tok/s, one agent alone 8,040"


def test_long_contexts_are_read_from_memory() -> None:
    """With contexts of 60,000 tokens the KV cache of 16 streams is eight times the weights."""
    step = decode_step(DENSE_8B, H200, Serving(context=60_050), 16)
    found = found_at([decoding(16, (step.seconds or 0.0) / 0.7, prompt=60_000)])
    assert found.binds == "bandwidth" and (found.bytes_per_step or 0.0) > 8 * DENSE_8B.dense_bytes


def test_large_batch_is_bound_by_compute() -> None:
    step = decode_step(DENSE_8B, H200, Serving(context=60), 2048)
    found = found_at([decoding(2048, (step.seconds or 0.0) / 0.6, prompt=10)])
    assert found.binds == "compute" and "60 % of the peak rate" in found.because


def test_small_model_is_bound_by_launch_overhead() -> None:
    small = msgspec.structs.replace(DENSE_8B, dense_bytes=0.5e9, dense_parameters=0.25e9, attention=())
    found = found_at([decoding(1, 2.5e-3), decoding(2, 2.5e-3)], served(small))
    assert found.binds == "launch_overhead"
    assert found.because == "2.4 ms of 2.5 ms per step go into neither reading nor computing"


def test_gateway_that_delays_is_seen_outside_the_server() -> None:
    split = TtftSplit(ttft_s=1.0, queue_s=0.05, prefill_s=0.15, rest_s=0.8)
    found = found_at([decoding(4, ttft_split=split)])
    assert (found.binds, found.because) == ("client", "800 ms of 1.0 s TTFT are outside the server")


def test_delay_of_the_first_token_does_not_bind_where_the_answer_is_long() -> None:
    split = TtftSplit(ttft_s=0.33, queue_s=0.0, prefill_s=0.06, rest_s=0.27)
    found = found_at([decoding(4, ttft_split=split, e2e_s=Spread(n=16, mean=4.0))])
    assert found.binds == "bandwidth"


def test_answers_that_a_level_did_not_wait_for_have_a_median_length() -> None:
    """The level ends before its last answers: their mean length is not known, the median is."""
    short = TtftSplit(ttft_s=0.33, queue_s=0.0, prefill_s=0.06, rest_s=0.27)
    long = TtftSplit(ttft_s=1.8, queue_s=0.0, prefill_s=0.1, rest_s=1.7)
    lengths = Spread(n=16, p50=4.0)
    assert found_at([decoding(4, ttft_split=short, e2e_s=lengths)]).binds == "bandwidth"
    assert found_at([decoding(4, ttft_split=long, e2e_s=lengths)]).binds == "client"


def test_step_is_the_median_gap_where_a_chunk_is_a_step() -> None:
    """Prompts of others lie in the mean: measured with vLLM on an H200, 64 agents: 9.6 ms and 5.7 ms."""
    gaps = Spread(n=16 * 99, mean=9.6e-3, p50=5.72e-3)
    level = msgspec.structs.replace(decoding(64, 9.61e-3), icl_s=gaps)
    assert found_at([level]).step_s == 5.72e-3
    joined = msgspec.structs.replace(level, icl_s=Spread(n=16 * 50, mean=19.2e-3, p50=12e-3))
    assert found_at([joined]).step_s == 9.61e-3


def test_levels_1_and_8_of_vllm_on_an_h200_predict_the_others() -> None:
    """7 B dense in bfloat16, 128 + 256 tokens: the medians of the gaps, in ms, and the limit in GB per step."""
    measured = {1: (14.06, 4.75), 8: (14.29, 4.91), 16: (14.56, 4.97), 32: (15.10, 5.23), 64: (16.17, 5.72)}
    points = {c: (1e9 * gb / (H200.bandwidth or 0.0), step / 1e3) for c, (gb, step) in measured.items()}
    fit = fit_steps([points[1], points[8]])
    assert fit is not None and fit.error < 0.02
    for limit, step in points.values():
        assert predicted_step(limit, fit.overhead_s, fit.efficiency) == pytest.approx(step, rel=0.06)


def test_power_cap_binds_where_little_of_the_gpu_is_used() -> None:
    energy = Energy(seconds=9.0, throttled=0.64, throttle=("power cap",))
    found = found_at([decoding(4, 3 * STEP_S, energy=energy)])
    assert (found.binds, found.because) == ("power", "clocks lowered 64 % of the time (power cap)")
    seldom = Energy(seconds=9.0, throttled=0.2, throttle=("power cap",))
    assert found_at([decoding(4, energy=seldom)]).because == "16.1 GB per step, 72 % of the memory bandwidth"


@pytest.mark.parametrize(("step_s", "share"), [(62.6e-3, "45 %"), (70.7e-3, "40 %")])
def test_power_cap_is_named_beside_what_is_used_up(step_s: float, share: str) -> None:
    """Measured twice on an H200: 512 agents of a model with 27 B parameters, clocks lowered all the time."""
    capped = Energy(seconds=9.0, utilisation=1.0, throttled=1.0, throttle=("power cap",))
    large = msgspec.structs.replace(DENSE_8B, dense_bytes=54e9, dense_parameters=27e9, attention=())
    found = found_at([decoding(512, step_s, prompt=32, energy=capped)], served(large))
    assert found.binds == "compute"
    cap = "clocks lowered 100 % of the time (power cap)"
    assert found.because == f"27.6 TFLOP per step, {share} of the peak rate; {cap}"
    found = found_at([decoding(4, energy=capped)])
    assert (found.binds, found.because) == ("bandwidth", f"16.1 GB per step, 72 % of the memory bandwidth; {cap}")


def test_idle_gpu_waits_for_the_process_of_the_server() -> None:
    """llama.cpp samples on the CPU: with 64 streams it kept a GPU busy for 57 % of the time."""
    idle = Energy(seconds=9.0, utilisation=0.57)
    found = found_at([decoding(64, energy=idle)])
    assert (found.binds, found.because) == ("server_cpu", "they are busy 57 % of the time")
    others = Energy(seconds=9.0, utilisation=0.57, all_gpus=True)  # which of them serve is not known
    assert found_at([decoding(64, energy=others)]).binds == "not_known"


def test_slow_steps_without_a_reason_are_not_known() -> None:
    steps = [decoding(1, 0.05), decoding(64, 0.051)]
    no_gpu = session_limits(steps, [served()], [], None, {}, None)
    assert {one.binds for one in no_gpu.levels} == {"not_known"} and no_gpu.levels[0].limit_tps is None
    assert [fact.code for fact in no_gpu.missing] == ["no_gpu"]
    elsewhere = served(None, shape_problem="the files of x were not found")
    no_model = session_limits(steps, [elsewhere], [GPU], None, {}, None)
    assert no_model.missing[0].code == "no_model" and "--model-path" in no_model.missing[0].text


def test_steps_faster_than_the_limit_say_that_the_facts_are_wrong() -> None:
    found = session_limits([decoding(1, 2e-3), decoding(8, 2.2e-3)], [served()], [GPU], None, {}, None)
    assert [fact.code for fact in found.missing] == ["above_limit"] and "162 %" in found.missing[0].text
    assert found.fit is None and {level.binds for level in found.levels} == {"not_known"}
    assert found.levels[0].share == pytest.approx(1.59, abs=0.01)


# settings of servers, and tags


def test_flags_say_how_a_model_is_served() -> None:
    flags = {"tensor-parallel-size": "2", "data-parallel-size": "3", "kv-cache-dtype": "fp8_e5m2",
             "speculative-config": '{"method": "mtp", "num_speculative_tokens": 3}'}  # fmt: skip
    found = served_as(served(flags=flags), None)
    assert (found.tensor_parallel, found.replicas, found.kv_bits, found.draft_tokens) == (2, 3, 8.0, 3)
    llama = served_as(served(flags={"cache-type-k": "q8_0", "cache-type-v": "q4_0"}), Slots(per_replica=4, replicas=2))
    assert (llama.kv_bits, llama.replicas, llama.slots, llama.draft_tokens) == (6.5, 2, 8, 0)


def test_reported_kv_bytes_are_those_of_the_servers_own_cache() -> None:
    """A server with an 8-bit cache reports 8-bit bytes; they are not halved once more."""
    found = served_as(served(flags={"kv-cache-dtype": "fp8"}, kv_token_bytes=65_536.0), None)
    assert kv_bytes(DENSE_8B, found, 1000) == pytest.approx(65_536_000)
    assert kv_bytes(DENSE_8B, served_as(served(kv_token_bytes=131_072.0), None), 1000) == pytest.approx(131_072_000)


def test_speculative_decoding_takes_tokens_per_step_from_the_counters() -> None:
    flags = {"speculative-config": '{"num_speculative_tokens": 3}'}
    counters = {1: ServerState(engine="", drafts=100.0, draft_tokens=300.0, accepted_tokens=150.0)}
    found = found_at([decoding(1, 2e-3)], served(flags=flags), counters=counters)
    assert found.step_s == pytest.approx(5e-3)  # 2.5 tokens per step
    unknown = found_at([decoding(1, 2e-3)], served(flags=flags))
    assert unknown.step_s is None and unknown.share is None


def test_tags_give_the_weights_of_a_server_elsewhere() -> None:
    """3.3 billion weights of half a byte, 167 times per second, of 936 GB/s; S0 claims "roughly 10 %"."""
    tags = {"active_bytes": "1.65GB", "gpu_bandwidth": "936GB/s", "model_bytes": "16.9GB", "experts": "8/128"}
    facts = model_facts_from_tags(tags)
    one, four = session_limits([decoding(1, 1 / 167), decoding(4, 0.01)], [], [], None, {}, facts).levels
    assert one.share == pytest.approx(0.294, abs=0.001)
    in_experts = (16.9e9 - 1.65e9) / (1 - 1 / 16)
    assert four.bytes_per_step == pytest.approx(1.65e9 + in_experts * ((15 / 16) - (15 / 16) ** 4))


def test_named_gpu_replaces_what_is_read() -> None:
    facts = model_facts_from_tags({"gpu": "4090"})
    found = session_limits([decoding(1)], [served()], [GPU], None, {}, facts)
    assert found.gpu == gpu_named("RTX 4090")


def test_simulated_gpu_has_no_limit() -> None:
    simulated = msgspec.structs.replace(GPU, simulated=True)
    assert session_limits([decoding(1)], [served()], [simulated], None, {}, None).gpu is None


# advice


def advice(levels: Sequence[Level], server: DiscoveredServer, **counters: Any) -> dict[str, str]:
    states = {one.c: ServerState(engine="", **counters) for one in levels}
    light = session_limits(levels, [server], [GPU], None, states, None)
    made = msgspec.structs.replace(summary(levels), servers=(server,), speed_of_light=light)
    found = answer(made, parse_slo("stream_p10=100"), "", states)
    return {step.code: step.sentence for step in found.next}


def test_full_kv_cache_is_advised_to_have_8_bits() -> None:
    found = advice([decoding(1), decoding(8)], served(kv_tokens=65_536), kv_use=0.98)
    assert (
        found["narrow_kv"]
        == "--kv-cache-dtype fp8: +100 % agents before the KV cache is full, as a token takes less of it (prediction)"
    )
    narrow = served(kv_tokens=65_536, flags={"kv-cache-dtype": "fp8"})
    assert "narrow_kv" not in advice([decoding(1), decoding(8)], narrow, kv_use=0.98)
    assert "narrow_kv" not in advice([decoding(1), decoding(8)], served(kv_tokens=65_536), kv_use=0.4)


def test_bandwidth_that_binds_advises_smaller_weights() -> None:
    model = msgspec.structs.replace(DENSE_8B, quantisation="BF16")
    found = advice([decoding(1), decoding(8)], served(model))
    assert found["smaller_weights"].startswith("weights of 8 bits: about ")
    assert "smaller_weights" not in advice([decoding(1), decoding(8)], served(qwen3_coder_awq()))


def test_run_without_an_end_is_not_advised_shorter_prompts() -> None:
    """One agent reads 8,000 tokens in a second; eight send 6,400 per second."""
    levels = [decoding(1, prompt=8000, ttft=1.0), decoding(8, 0.06, prompt=8000, tps=80.0, n=16)]
    light = session_limits(levels, [served()], [GPU], None, {}, None)
    assert light.levels[-1].binds == "prefill"
    made = msgspec.structs.replace(summary(levels), servers=(served(),), speed_of_light=light)
    assert answer(made, None, "", {}).limit.code == "prefill_share"
    assert "shorter_prompts" not in {step.code for step in answer(made, None, "", {}).next}


@pytest.mark.parametrize(("n", "tokens"), [(1, 500), (2, 500), (16, 4)])
def test_few_answers_do_not_say_that_prompts_take_most_of_the_time(n: int, tokens: int) -> None:
    """Neither one or two long ones nor tokens for a sentence in all of them."""
    few = msgspec.structs.replace(
        decoding(8, 0.06, prompt=8000, tps=80.0, n=16), ok=n, tokens_in=8000 * n, tokens_out=tokens
    )
    found = session_limits([decoding(1, prompt=8000, ttft=1.0), few], [served()], [GPU], None, {}, None)
    assert found.levels[-1].binds != "prefill"


def test_eager_server_is_advised_to_use_cuda_graphs() -> None:
    small = msgspec.structs.replace(DENSE_8B, dense_bytes=0.5e9, dense_parameters=0.25e9, attention=())
    levels = [decoding(1, 2.5e-3), decoding(2, 2.5e-3)]
    assert "cuda_graphs" in advice(levels, served(small, flags={"enforce-eager": "true"}))
    assert "cuda_graphs" not in advice(levels, served(small))


def test_missing_speed_of_light_says_nothing() -> None:
    slow = decoding(2, 0.1, per_stream_tps=RateSummary(mean=10.0, p50=10.0))
    made = msgspec.structs.replace(summary([slow]), speed_of_light=SpeedOfLight())
    assert answer(made, None, "", {}).limit.code == "not_known"
