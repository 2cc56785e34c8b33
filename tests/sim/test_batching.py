"""The engine model: invariants under any load, and the effect of each setting."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.sim.batching import BatchingEngine, Job, Step, step_seconds
from swarmtui.sim.kv_pool import KvPool, block_hashes
from swarmtui.sim.presets import Noise, Preset, Speculative, StepTime, find_preset
from tests.sim.virtual_load import closed_loop, decode_tps, first_token, last_token

PLAIN = Preset(name="plain", model="m", step_ms=StepTime(a=10, c=1), prefill_tps=1000, slots=2, budget=100)


def run_to_end(engine: BatchingEngine) -> list[Step]:
    return list(engine.advance(math.inf))


def test_linear_step_time() -> None:
    t = step_seconds(StepTime(a=5.0, c=0.5))
    assert [t(1), t(4)] == pytest.approx([0.0055, 0.007])


def test_step_time_table_is_interpolated_and_extrapolated() -> None:
    t = step_seconds(StepTime(at={"1": 10, "2": 14, "4": 20}))
    assert [t(b) * 1e3 for b in (1, 2, 3, 4, 6)] == pytest.approx([10, 14, 17, 20, 26])


def test_first_token_comes_after_chunked_prefill() -> None:
    engine = BatchingEngine(PLAIN)
    job = Job(0, 250, 3)
    engine.submit(job, 5.0)
    steps = run_to_end(engine)
    # Two chunks of 100 tokens and one of 50, each in a step of 11 ms, then two steps of decoding.
    assert first_token(job) == pytest.approx(5.0 + 0.250 + 3 * 0.011)
    assert last_token(job) == pytest.approx(first_token(job) + 2 * 0.011)
    assert [sum(n for _, n in step.tokens) for step in steps] == [0, 0, 1, 1, 1]


def test_decoding_continues_during_prefill() -> None:
    engine = BatchingEngine(PLAIN)
    early, late = Job(0, 10, 50), Job(1, 400, 5)
    engine.submit(early, 0.0)
    before = list(engine.advance(0.1))
    engine.submit(late, 0.1)
    during = [step for step in run_to_end(engine) if step.prefilling]
    assert before and len(during) == 5
    assert all((early, 1) in step.tokens for step in during)
    assert [step.prefilling[0][1] for step in during] == [99, 99, 99, 99, 4]


def test_requests_get_slots_in_order() -> None:
    jobs = closed_loop(PLAIN, 5, [20] * 5, prompt=10).jobs
    firsts = [first_token(job) for job in jobs]
    assert firsts == sorted(firsts)
    assert first_token(jobs[2]) > last_token(jobs[0])


def test_requests_go_to_the_least_loaded_replica() -> None:
    engine = BatchingEngine(msgspec.structs.replace(PLAIN, replicas=3))
    jobs = [Job(number, 10, 50) for number in range(4)]
    for job in jobs:
        engine.submit(job, 0.0)
    assert [job.replica for job in jobs] == [0, 1, 2, 0]
    engine.cancel(jobs[1])
    late = Job(4, 10, 50)
    engine.submit(late, 0.0)
    assert late.replica == 1


def test_factors_for_waiting_requests_and_busy_replicas() -> None:
    preset = msgspec.structs.replace(PLAIN, replicas=2, slots=1, waiting_factor=1.5, together_factor=1.1)
    alone, beside = BatchingEngine(preset), BatchingEngine(preset)
    alone.submit(Job(0, 10, 2), 0.0)
    for number in range(3):
        beside.submit(Job(number, 10, 2), 0.0)
    step = (0.010 + 0.001) + 10 / 1000
    assert next(iter(alone.advance(math.inf))).end == pytest.approx(step)
    first, second = sorted(
        (replica.step.end if replica.step else 0.0) for replica in with_started_steps(beside).replicas
    )
    assert first == pytest.approx(step * 1.1)
    assert second == pytest.approx(step * 1.1 * 1.5)


def with_started_steps(engine: BatchingEngine) -> BatchingEngine:
    engine.next_end()
    return engine


def test_cancelled_request_frees_its_slot() -> None:
    engine = BatchingEngine(msgspec.structs.replace(PLAIN, slots=1))
    first, second = Job(0, 10, 1000), Job(1, 10, 2)
    engine.submit(first, 0.0)
    engine.submit(second, 0.0)
    list(engine.advance(0.1))
    produced = first.produced
    engine.cancel(first)
    run_to_end(engine)
    assert second.done and last_token(second) < 0.2
    assert 0 < first.produced == produced
    assert engine.replicas[0].kv_tokens_used == 0


def test_speculative_decoding_gives_several_tokens_per_step() -> None:
    preset = msgspec.structs.replace(PLAIN, speculative=Speculative(tokens=3, acceptance=0.5))
    engine = BatchingEngine(preset, seed=1)
    job = Job(0, 10, 2000)
    engine.submit(job, 0.0)
    steps = run_to_end(engine)
    sizes = [n for step in steps for _, n in step.tokens]
    assert sum(sizes) == 2000
    assert set(sizes) == {1, 2, 3, 4}
    # 1 + p + p² + p³ tokens per step.
    assert sum(sizes) / len(sizes) == pytest.approx(1.875, rel=0.05)
    assert sum(step.accepted for step in steps) == 2000 - len(sizes)


def test_noise_depends_on_the_seed() -> None:
    preset = msgspec.structs.replace(PLAIN, noise=Noise(step_cv=0.1))

    def wall(seed: int) -> float:
        return closed_loop(preset, 2, [50] * 4, prompt=10, seed=seed).wall_s

    assert wall(1) == wall(1) != wall(2)
    assert wall(1) == pytest.approx(closed_loop(PLAIN, 2, [50] * 4, prompt=10).wall_s, rel=0.05)


def test_cached_prefix_costs_no_prefill() -> None:
    preset = msgspec.structs.replace(PLAIN, prefix_cache=True, block_size=4)
    engine = BatchingEngine(preset)
    shared = [f"w{i}" for i in range(40)]
    jobs = [
        Job(number, len(prompt), 1, block_hashes(prompt, 4))
        for number, prompt in enumerate(([*shared, "a"], [*shared, "b"], ["x", *shared]))
    ]
    ends = []
    for at, job in enumerate(jobs):
        engine.submit(job, float(at))
        run_to_end(engine)
        ends.append(last_token(job) - job.arrived)
    assert [job.cached for job in jobs] == [0, 40, 0]
    assert ends == pytest.approx([0.011 + 0.041, 0.011 + 0.001, 0.011 + 0.041])
    assert (engine.replicas[0].prefix_queries, engine.replicas[0].prefix_hits) == (123, 40)


def test_fully_cached_prompt_still_computes_its_last_block() -> None:
    engine = BatchingEngine(msgspec.structs.replace(PLAIN, prefix_cache=True, block_size=4))
    prompt = [str(i) for i in range(8)]
    for at in range(2):
        job = Job(at, 8, 1, block_hashes(prompt, 4))
        engine.submit(job, float(at))
        run_to_end(engine)
    assert job.cached == 4


def test_least_recently_used_prefix_is_evicted_from_its_end() -> None:
    pool = KvPool(100, 10)
    old, new = [1, 2, 3, 4], [5, 6, 7, 8]
    for blocks in (old, new):
        assert pool.acquire(41, blocks) == 0
        pool.share(blocks)
        pool.release(41, blocks)
    assert pool.used_tokens == 0
    assert pool.acquire(41, old) == 4
    assert not pool.fits(60, [9])
    assert pool.fits(60, [1]) and not pool.fits(60, new)
    assert pool.acquire(39, [9]) == 0  # 80 in use: room for two of the unused blocks
    assert pool.acquire(0, new) == 2
    assert pool.used_tokens == 41 + 39 + 20 - 20


def test_contexts_that_no_longer_fit_are_computed_again() -> None:
    """Agents take turns: the cache serves all of them, or few, as each turn evicts what is needed next."""
    hits = {}
    for agents in (4, 5):
        preset = msgspec.structs.replace(
            PLAIN, prefix_cache=True, block_size=4, kv_tokens=420, max_model_len=400, slots=8
        )
        engine = BatchingEngine(preset)
        prompts = [block_hashes([str(agent)] * 100, 4) for agent in range(agents)]
        for turn in range(3 * agents):
            engine.submit(Job(turn, 100, 2, prompts[turn % agents]), float(turn))
            run_to_end(engine)
        replica = engine.replicas[0]
        hits[agents] = replica.prefix_hits / replica.prefix_queries
    assert hits[4] == pytest.approx(0.96 * 2 / 3)
    assert hits[5] < 0.2


def test_full_kv_cache_preempts_the_latest_request_without_loss() -> None:
    preset = msgspec.structs.replace(PLAIN, kv_tokens=100, max_model_len=100)
    engine = BatchingEngine(preset)
    jobs = [Job(number, 20, 60) for number in range(2)]
    for job in jobs:
        engine.submit(job, 0.0)
    steps = run_to_end(engine)
    assert engine.replicas[0].preemptions == 1
    assert [job.preemptions for job in jobs] == [0, 1]
    assert [sum(n for step in steps for j, n in step.tokens if j is job) for job in jobs] == [60, 60]


def test_presets_differ_in_the_cost_of_busy_replicas() -> None:
    """Four agents on one GPU slow the MoE down more than the dense model."""
    loss = {}
    for name in ("moe-tp1", "dense-tp1"):
        alone = closed_loop(find_preset(name), 1, [500], prompt=50).jobs[0]
        four = closed_loop(find_preset(name), 4, [500] * 4, prompt=50).jobs[0]
        loss[name] = decode_tps(four) / decode_tps(alone)
    assert loss["moe-tp1"] < 0.65 < 0.9 < loss["dense-tp1"]


arrivals = st.lists(
    st.tuples(
        st.floats(0, 2),  # seconds after the previous request
        st.integers(1, 300),  # prompt
        st.integers(1, 40),  # output
        st.booleans(),  # whether its client disconnects when the next request arrives
    ),
    min_size=1,
    max_size=20,
)


@given(
    arrivals=arrivals,
    slots=st.integers(1, 4),
    replicas=st.integers(1, 3),
    budget=st.integers(21, 120),
    drafted=st.integers(0, 4),
    kv_tokens=st.sampled_from([None, 400]),
    step_cv=st.sampled_from([0.0, 0.3]),
    prefix_cache=st.booleans(),
)
def test_invariants_under_any_load(
    arrivals: list[tuple[float, int, int, bool]],
    slots: int,
    replicas: int,
    budget: int,
    drafted: int,
    kv_tokens: int | None,
    step_cv: float,
    prefix_cache: bool,
) -> None:
    preset = msgspec.structs.replace(
        PLAIN, slots=slots, replicas=replicas, budget=budget, kv_tokens=kv_tokens, max_model_len=400,
        speculative=Speculative(tokens=drafted, acceptance=0.6), noise=Noise(step_cv=step_cv),
        prefix_cache=prefix_cache,
    )  # fmt: skip
    engine = BatchingEngine(preset, seed=3)
    steps: list[Step] = []
    jobs: list[Job] = []
    leaving: Job | None = None
    now = 0.0
    for number, (gap, prompt, output, leaves) in enumerate(arrivals):
        now += gap
        steps += engine.advance(now)
        if leaving:
            engine.cancel(leaving)
        blocks = block_hashes(["same"] * prompt, 16) if prefix_cache else ()
        jobs.append(Job(number, prompt, output, blocks))
        engine.submit(jobs[-1], now)
        leaving = jobs[-1] if leaves else None
        assert all(len(replica.running) <= slots for replica in engine.replicas)
        assert all(replica.kv_tokens_used <= (kv_tokens or 1 << 20) for replica in engine.replicas)
    steps += run_to_end(engine)

    given_out = {job.number: 0 for job in jobs}
    free_at = [0.0] * replicas
    for step in steps:
        assert 1 <= step.batch <= slots
        assert len(step.decoding) * (1 + drafted) + sum(chunk for _, chunk in step.prefilling) <= budget
        assert free_at[step.replica] <= step.start < step.end
        free_at[step.replica] = step.end
        for job, count in step.tokens:
            assert 1 <= count <= 1 + drafted
            given_out[job.number] += count
    for job in jobs:
        assert given_out[job.number] == job.produced
        assert job.produced == job.output_tokens or job.gone
        if job.admitted is not None:
            assert job.arrived <= job.admitted
    for replica in engine.replicas:
        served = [job for job in jobs if job.replica == replica.number and job.admitted is not None]
        if not replica.preemptions:
            assert [job.admitted for job in served] == sorted(job.admitted or 0.0 for job in served)
        assert (replica.kv_tokens_used, replica.running, len(replica.waiting)) == (0, [], 0)
