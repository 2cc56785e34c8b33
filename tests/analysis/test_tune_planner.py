"""The planner of automatic tunes: it finds a known optimum, repeats no start, and takes crashes as constraints."""

from __future__ import annotations

from collections.abc import Callable
from statistics import pstdev

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmtui.analysis.tuning.figures import compared_values, error_line
from swarmtui.analysis.tuning.outcome import TuneOutcome, starts_sentence, tune_outcome
from swarmtui.analysis.tuning.planner import plan_tune
from swarmtui.analysis.tuning.space import Crash, Machine, SearchSpace, make_space
from swarmtui.analysis.tuning.steps import SearchRules, TuneProgress
from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import Conflict, Knob
from swarmtui.engines.registry import engine_named
from swarmtui.model.speed_of_light import AttentionLayers, Binding, GpuFigures, LevelLimit, ModelShape, SpeedOfLight
from swarmtui.model.tuning import Flags, Start, configuration_key

RULES = SearchRules(objective="out_tps", budget_s=3600.0)
SLOTS = Knob(name="--slots", stage="slots", values=(1, 2, 4, 8, 16), default=2, moves=("slots",), takes_memory=True)
BATCH = Knob(name="--batch", stage="slots", values=(64, 128, 256), default=128, moves=("prefill",), takes_memory=True)
MODE = Knob(name="--mode", stage="cache", values=("a", "b", "c"), default="a", moves=("bandwidth",))


def space_of(*knobs: Knob, command: str = "server") -> SearchSpace:
    engine = Engine()
    engine.name, engine.knobs = "test", knobs
    return make_space(engine, command.split(), machine=Machine(gpus=2, cores=8))


def start(flags: Flags, tps: float | None, **fields: object) -> Start:
    """A start, which failed without tok/s."""
    failed = {"state": "broken", "reason": "exited with code 1", "log": ("CUDA out of memory",)} if tps is None else {}
    return Start(flags=flags, out_tps=tps, **{"start_s": 2.0, "took_s": 12.0, **failed, **fields})  # type: ignore[arg-type]


def run(
    space: SearchSpace, value: Callable[[Flags], float | None], rules: SearchRules = RULES, **fields: object
) -> tuple[list[Start], TuneProgress]:
    """Start what the planner asks for until it is done."""
    starts: list[Start] = []
    while (progress := plan_tune(space, rules, starts)).ask is not None:
        ask = progress.ask
        starts.append(start(ask.flags, value(ask.flags), step=ask.step, side=ask.side, **fields))
        assert len(starts) < 200
    return starts, progress


def peaked(flags: Flags) -> float:
    """Best with 8 slots and mode b, which needs 8 slots."""
    slots = int(flags.get("--slots", 2))
    best = {1: 50.0, 2: 100.0, 4: 160.0, 8: 200.0, 16: 150.0}[slots]
    return best * (1.2 if flags.get("--mode") == "b" else 1.0)


def test_finds_the_best_configuration_and_the_claim_is_that_of_the_ab_test() -> None:
    starts, progress = run(space_of(SLOTS, BATCH, MODE), peaked)
    assert progress.winner == {"--slots": 8, "--mode": "b"}
    assert progress.decision is not None and progress.decision.word == "faster" and progress.ended == "done"
    confirm = [start.side or "" for start in starts if start.step == "confirm"]
    assert sorted(confirm) == ["A"] * 4 + ["B"] * 4
    assert len(starts) < 30


def test_first_start_is_the_command_as_it_is() -> None:
    ask = plan_tune(space_of(SLOTS), RULES, ()).ask
    assert ask is not None and (ask.flags, ask.step, ask.code) == ({}, "screen", "baseline")


def test_knobs_without_effect_end_without_a_change() -> None:
    starts, progress = run(space_of(SLOTS, BATCH, MODE), lambda flags: 100.0)
    assert progress.winner is None and progress.decision is None
    assert all(start.step == "screen" for start in starts)


def test_command_that_fails_ends_the_search() -> None:
    starts, progress = run(space_of(SLOTS), lambda flags: None)
    assert (len(starts), progress.ended) == (1, "no_baseline")


def test_crash_removes_all_values_beyond_it_and_keeps_its_log_line() -> None:
    starts, progress = run(space_of(SLOTS), lambda flags: None if int(flags.get("--slots", 2)) >= 4 else 100.0)
    assert [start.flags for start in starts if start.state == "broken"] == [{"--slots": 8}, {"--slots": 4}]
    assert {(crash.knob, crash.line) for crash in progress.crashes} == {("--slots", "CUDA out of memory")}
    space = space_of(SLOTS, BATCH)
    refused = space.refuse({"--slots": 16, "--batch": 256}, progress.crashes)
    assert refused is not None and refused.code == "crashed" and "CUDA out of memory" in refused.reason
    assert space.refuse({"--slots": 1}, progress.crashes) is None
    # Less memory for another knob may leave enough.
    assert space.refuse({"--slots": 4, "--batch": 64}, progress.crashes) is None


def test_flag_that_the_server_does_not_know_is_tried_once() -> None:
    log = ("usage: server", "error: unrecognized arguments: --mode b")
    space = space_of(MODE)
    starts: list[Start] = []
    while (ask := plan_tune(space, RULES, starts).ask) is not None:
        broken = {"state": "broken", "reason": "exited with code 2", "log": log} if ask.flags else {}
        starts.append(start(ask.flags, 100.0, step=ask.step, **broken))
    assert [start.flags for start in starts if start.flags] == [{"--mode": "b"}]


def test_small_gain_is_started_again_before_it_counts() -> None:
    values = {"a": iter((100.0, 104.0, 101.0, 104.0)), "b": iter((104.0, 99.0, 102.0, 98.0))}
    space, starts = space_of(msgspec.structs.replace(MODE, values=("a", "b"))), list[Start]()
    while (progress := plan_tune(space, RULES, starts)).ask is not None and len(starts) < 6:
        mode = str(progress.ask.flags.get("--mode", "a"))
        starts.append(start(progress.ask.flags, next(values[mode]), step="screen"))
    assert [start.flags for start in starts][:4] == [{}, {"--mode": "b"}, {}, {"--mode": "b"}]
    assert progress.leader == {} and progress.winner is None


def test_gain_of_less_than_two_percent_changes_nothing() -> None:
    values = {"a": 100.0, "b": 101.6}
    space, starts = space_of(msgspec.structs.replace(MODE, values=("a", "b"))), list[Start]()
    while (progress := plan_tune(space, RULES, starts)).ask is not None and len(starts) < 12:
        ask = progress.ask
        starts.append(start(ask.flags, values[str(ask.flags.get("--mode", "a"))], step=ask.step))
    assert {"--mode": "b"} in [start.flags for start in starts]
    assert progress.leader == {} and progress.winner is None


def test_interrupted_search_continues_where_it_was() -> None:
    """Any prefix of the history leads to the same next start: nothing is repeated."""
    space = space_of(SLOTS, BATCH, MODE)
    starts, _ = run(space, peaked)
    for count, following in enumerate(starts):
        ask = plan_tune(space, RULES, starts[:count]).ask
        assert ask is not None and (ask.flags, ask.step, ask.side) == (following.flags, following.step, following.side)


def test_budget_bounds_the_time_and_leaves_room_for_the_ab_test() -> None:
    rules = RULES._replace(budget_s=300.0)
    starts, progress = run(space_of(SLOTS, BATCH, MODE), peaked, rules)
    assert sum(start.took_s or 0.0 for start in starts) <= 300.0
    assert progress.decision is not None


def test_first_start_that_reads_the_model_does_not_make_the_ab_test_look_too_long() -> None:
    starts: list[Start] = []
    rules = RULES._replace(budget_s=1260.0)
    while (progress := plan_tune(space_of(SLOTS, BATCH, MODE), rules, starts)).ask is not None:
        ask, load_s = progress.ask, 20.0 if progress.ask.step == "screen" else 34.0
        start_s = 50.0 if starts else 200.0
        starts.append(
            start(
                ask.flags, peaked(ask.flags), step=ask.step, side=ask.side, start_s=start_s, took_s=start_s + load_s
            )
        )  # fmt: skip
    assert progress.decision is not None and progress.decision.word == "faster"
    assert progress.spent_s <= rules.budget_s


def test_all_starts_are_a_small_part_of_the_grid_however_many_passes_gain() -> None:
    knobs = [
        Knob(name=name, stage="slots", values=(1, 2, 4, 8, 16), default=1, moves=("slots",))
        for name in ("--a", "--b", "--c")
    ]
    space = space_of(*knobs, MODE)

    def better_together(flags: Flags) -> float:
        product = 1.0
        for knob in knobs:
            product *= float(flags.get(knob.name, 1))
        return 100.0 + product

    starts, progress = run(space, better_together)
    assert progress.decision is not None and progress.decision.word == "faster"
    assert len(starts) <= 0.15 * space.size


def test_budget_that_is_too_short_gives_no_claim() -> None:
    starts, progress = run(space_of(SLOTS), peaked, RULES._replace(budget_s=60.0))
    assert progress.decision is None and progress.ended == "budget"
    assert sum(start.took_s or 0.0 for start in starts) <= 60.0


def test_short_budget_is_not_kept_for_an_ab_test_that_has_nothing_to_confirm() -> None:
    """Eight starts of 22 s would leave time for one before them."""
    starts, progress = run(space_of(SLOTS), peaked, RULES._replace(budget_s=225.0))
    assert progress.leader == {"--slots": 8} and len(starts) > 4
    assert sum(start.took_s or 0.0 for start in starts) <= 225.0


def test_no_time_is_kept_for_an_ab_test_while_nothing_gains() -> None:
    """The A/B test would take 202 of 260 s; the last mode is the first change that gains."""
    starts, progress = run(
        space_of(SLOTS, BATCH, MODE), lambda flags: 130.0 if flags.get("--mode") == "c" else 100.0,
        RULES._replace(budget_s=260.0),
    )  # fmt: skip
    assert progress.leader == {"--mode": "c"}
    assert sum(start.took_s or 0.0 for start in starts) <= 260.0


def test_pins_vetoes_and_added_configurations_are_obeyed() -> None:
    space = space_of(SLOTS, BATCH, MODE)
    pinned = msgspec.structs.replace(space, pins={"--slots": 4}, vetoes=({"--mode": "b"},))
    starts, progress = run(pinned, peaked)
    assert all(start.flags.get("--slots") == 4 for start in starts if start.flags)
    assert not any(start.flags.get("--mode") == "b" for start in starts)
    assert progress.winner == {"--slots": 4}
    asked = plan_tune(space, RULES, [start({}, 100.0, step="screen")], [{"--batch": 64, "--mode": "c"}]).ask
    assert asked is not None and (asked.flags, asked.code) == ({"--batch": 64, "--mode": "c"}, "added")


def test_what_was_started_before_the_user_added_something_is_not_forgotten() -> None:
    space, best = space_of(SLOTS, BATCH, MODE), Flags({"--slots": 8, "--mode": "b"})
    added = [Flags({"--slots": 1, "--mode": "c"})]

    def value(flags: Flags) -> float:
        """Return a speed by which the added configuration has no better neighbour."""
        return 120.0 if flags.get("--mode") == "c" else peaked(flags)

    before: list[Flags] = [{}, {"--slots": 8}, best, *added]
    starts = [start(flags, value(flags), step="screen") for flags in before]
    assert plan_tune(space, RULES, starts, added).leader == best
    while (progress := plan_tune(space, RULES, starts, added)).ask is not None:
        ask = progress.ask
        starts.append(start(ask.flags, value(ask.flags), step=ask.step, side=ask.side))
        assert len(starts) < 100
    assert progress.winner == best


def test_recipe_is_started_first_and_named_as_such() -> None:
    space, recipe, own = space_of(MODE), Flags({"--slots": 8, "--mode": "b"}), Flags({"--mode": "c"})
    starts, whys = list[Start](), list[str]()
    while (progress := plan_tune(space, RULES, starts, [own], recipe)).ask is not None:
        whys.append(progress.ask.why)
        starts.append(start(progress.ask.flags, 100.0, step=progress.ask.step, side=progress.ask.side))
    assert whys[:3] == ["the command as it is", "the recipe", "added by you"]
    found = tune_outcome(space, progress, starts, "out_tps", budget_s=60.0, command="c", given="g", recipe=recipe)
    # Its slots are no knob of this tune.
    assert found.configurations > found.size and "possible" not in starts_sentence(found)


def test_configuration_that_crashes_in_the_ab_test_gives_way_to_the_next() -> None:
    space, starts = space_of(SLOTS), list[Start]()
    while (progress := plan_tune(space, RULES, starts)).ask is not None:
        ask = progress.ask
        fails = ask.step == "confirm" and ask.flags == {"--slots": 8}
        starts.append(start(ask.flags, None if fails else peaked(ask.flags), step=ask.step, side=ask.side))
        assert len(starts) < 100
    assert progress.winner is not None and progress.winner != {"--slots": 8}


def test_power_limit_is_tried_last_with_the_flags_that_were_found() -> None:
    power = Knob(name="power_w", stage="power", values=(595, 525, 455, 385, 315), moves=("power",))

    def joules(flags: Flags) -> float:
        watts = int(flags.get("power_w", 700))
        return {700: 3.0, 595: 2.6, 525: 2.4, 455: 2.2, 385: 2.0, 315: 2.5}[watts] * 200 / peaked(flags)

    rules, starts = RULES._replace(objective="j_per_token"), list[Start]()
    while (ask := plan_tune(space_of(SLOTS, BATCH, MODE, power), rules, starts).ask) is not None:
        value = joules(ask.flags)
        starts.append(start(ask.flags, 100.0, j_per_token=value, step=ask.step, side=ask.side))
    screened = [each.flags for each in starts if each.step == "screen"]
    first = next(at for at, flags in enumerate(screened) if "power_w" in flags)
    assert screened[first] == {"--slots": 8, "--mode": "b", "power_w": 455}
    assert all("power_w" in flags for flags in screened[first:]), "the flags are not searched again without it"
    progress = plan_tune(space_of(SLOTS, BATCH, MODE, power), rules, starts)
    assert progress.winner == {"--slots": 8, "--mode": "b", "power_w": 385}
    assert progress.decision is not None and progress.decision.word == "faster"


def test_stages_leave_time_for_the_power_limit() -> None:
    power = Knob(name="power_w", stage="power", values=(500, 300), moves=("power",))
    starts, _ = run(space_of(SLOTS, BATCH, MODE, power), peaked, RULES._replace(budget_s=240.0))
    assert any("power_w" in each.flags for each in starts)


PARTS = Knob(name="--parts", stage="parallelism", values=("one", "two"), default="one", moves=("bandwidth",))


def bound_by(space: SearchSpace, *binds: Binding) -> SearchSpace:
    """Let the levels of the command as it is be bound by these."""
    levels = tuple(
        LevelLimit(
            c=c, batch=1.0, context=0.0, bytes_per_step=None, flops_per_step=None, limit_tps=None, expected_tps=None,
            binds=each,
        )
        for c, each in enumerate(binds, 1)
    )  # fmt: skip
    return msgspec.structs.replace(space, limits=SpeedOfLight(levels=levels))


def knobs_in_order(space: SearchSpace) -> list[str]:
    starts, _ = run(space, lambda flags: 100.0)
    return list(dict.fromkeys(name for each in starts for name in each.flags))


def test_what_binds_the_highest_level_is_moved_first() -> None:
    space = space_of(PARTS, SLOTS, BATCH, MODE)
    assert knobs_in_order(bound_by(space, "bandwidth", "slots"))[:2] == ["--slots", "--parts"]
    assert knobs_in_order(bound_by(space, "slots", "bandwidth"))[:3] == ["--parts", "--mode", "--slots"]
    assert knobs_in_order(bound_by(space, "not_known"))[:2] == ["--parts", "--slots"]
    assert knobs_in_order(space)[:2] == ["--parts", "--slots"]


def test_slots_that_are_all_taken_are_raised_first_also_with_little_time() -> None:
    space = bound_by(space_of(PARTS, MODE, SLOTS), "not_known", "slots")
    starts, _ = run(space, peaked, RULES._replace(budget_s=60.0))
    assert starts[1].flags == {"--slots": 8}


AGENTS = RULES._replace(objective="agents")


def carry(agents: int, high: int | None, tps: float) -> dict[str, object]:
    return {"agents": agents, "agents_low": agents, "agents_high": high, "out_tps": tps}


def run_agents(space: SearchSpace, found: Callable[[Flags], dict[str, object]]) -> TuneProgress:
    starts: list[Start] = []
    while (progress := plan_tune(space, AGENTS, starts)).ask is not None:
        ask = progress.ask
        measured = start(ask.flags, 1.0, step=ask.step, side=ask.side)
        starts.append(msgspec.structs.replace(measured, **found(ask.flags)))
        assert len(starts) < 200
    return progress


def test_between_equal_capacities_the_throughput_leads_on() -> None:
    """No knob alone, and no two, change the capacity as far as a coarse search can see; all three do."""
    best: Flags = {"--slots": 8, "--mode": "b", "--batch": 256}

    def found(flags: Flags) -> dict[str, object]:
        tps = 100.0 * 1.3 ** sum(flags.get(name) == value for name, value in best.items())
        return carry(16, 31, tps) if tps > 200 else carry(8, 15, tps)

    progress = run_agents(space_of(SLOTS, BATCH, MODE), found)
    assert progress.winner == best
    assert progress.decision is not None and progress.decision.word == "faster"


def test_throughput_alone_is_no_claim_of_more_agents() -> None:
    progress = run_agents(space_of(SLOTS, MODE), lambda flags: carry(8, 15, peaked(flags)))
    assert progress.decision is not None and progress.decision.word == "same"


def test_no_more_agents_are_claimed_than_a_command_whose_capacity_was_not_reached() -> None:
    def found(flags: Flags) -> dict[str, object]:
        return carry(128, 255, 200.0) if flags.get("--slots") == 8 else carry(64, None, 100.0)

    progress = run_agents(space_of(SLOTS), found)
    assert progress.winner == {"--slots": 8} and progress.decision is not None
    assert progress.decision.word == "not sure yet" and "may carry more than 64 agents" in progress.decision.detail


def test_equal_numbers_of_agents_leave_an_interval_as_wide_as_their_rounding() -> None:
    progress = run_agents(space_of(SLOTS), lambda flags: carry(9 if flags.get("--slots") == 8 else 8, 12, 100.0))
    assert progress.decision is not None and progress.decision.interval is not None
    interval = progress.decision.interval
    assert progress.decision.word == "faster" and 0.0 < interval.low < 0.1 < 0.15 < interval.high < 0.3


@given(st.lists(st.integers(0, 60), min_size=4, max_size=12))
def test_rounding_never_makes_agents_agree_better(found: list[int]) -> None:
    plain = [start({}, 1.0, agents=agents) for agents in found]
    spread = compared_values(plain, "agents")
    assert pstdev(spread) > pstdev(max(agents, 0.5) for agents in found) - 1e-9 and min(spread) > 0


def test_excluded_and_bounded_values_are_never_started() -> None:
    small = Knob(
        name="--ubatch", stage="slots", values=(64, 128, 512), default=64, moves=("prefill",), at_most=("--batch",)
    )
    mode = msgspec.structs.replace(MODE, excludes=(Conflict(values=("b",), other="--batch", other_values=(128,)),))
    starts, progress = run(space_of(BATCH, small, mode), lambda flags: 100.0)
    for each in starts:
        batch = int(each.flags.get("--batch", 128))
        assert not (each.flags.get("--mode") == "b" and batch == 128)
        assert int(each.flags.get("--ubatch", 64)) <= batch
    assert "excluded" in {skipped.refusal.code for skipped in progress.skipped}


# prediction

MODEL = ModelShape(
    architecture="llama", source="gguf", dense_bytes=16e9, dense_parameters=8e9, layers=32, heads=32, kv_heads=8,
    attention=(AttentionLayers(layers=32, elements=2048, flops=16384),),
)  # fmt: skip
GPU = GpuFigures(name="GPU", bandwidth=900e9, memory=24e9)


def test_limits_prune_what_cannot_fit_or_cannot_be_better() -> None:
    engine = engine_named("llama.cpp")
    words = ["llama-server", "-m", "M", "-np", "4", "-c", "16384"]
    space = make_space(engine, words, machine=Machine(gpus=1, cores=8), grid={"--parallel": (1, 4, 32)})
    space = msgspec.structs.replace(space, limits=SpeedOfLight(model=MODEL, gpu=GPU))
    low, high = space.ceiling({"--parallel": 1}), space.ceiling({})
    assert low is not None and high is not None and low < 60 < high
    refused = space.refuse({"--parallel": 1}, best=100.0)
    assert refused is not None and refused.code == "below_best"
    refused = space.refuse({"--parallel": 32})  # with eight times the context
    assert refused is not None and refused.code == "no_memory" and "cannot fit" in refused.reason
    assert space.refuse({"--parallel": 32, "--ctx-size": 16384}) is None


def test_tensor_and_data_parallelism_share_the_gpus() -> None:
    space = make_space(engine_named("vLLM"), ["vllm", "serve", "M"], machine=Machine(gpus=2, cores=8))
    assert space.refuse({"--tensor-parallel-size": 2}) is None
    refused = space.refuse({"--tensor-parallel-size": 2, "--data-parallel-size": 2})
    assert refused is not None and refused.code == "bound"


def test_knobs_of_several_gpus_are_left_out_with_one() -> None:
    words = ["llama-server"]
    one, two = (make_space(engine_named("llama.cpp"), words, machine=Machine(gpus=gpus, cores=2)) for gpus in (1, 2))
    assert {left.knob: left.reason for left in one.left_out}["--split-mode"] == "needs two or more GPUs"
    assert "--split-mode" in {knob.name for knob in two.knobs}


def test_quality_and_missing_hardware_are_left_out_with_a_reason() -> None:
    machine = Machine(gpus=0, cores=2)
    space = make_space(engine_named("llama.cpp"), ["llama-server"], machine=machine)
    codes = {left.knob: left.code for left in space.left_out}
    assert (
        codes["--cache-type-k"] == "quality" and codes["--n-cpu-moe"] == "machine" and codes["--draft-max"] == "needs"
    )
    threads = next(knob for knob in space.knobs if knob.name == "--threads")
    assert threads.values == (1, 2)
    allowed = make_space(engine_named("llama.cpp"), ["llama-server", "-md", "d"], machine=machine, allow_quality=True)
    assert {"--cache-type-k", "--draft-max"} <= {knob.name for knob in allowed.knobs}


# outcome


def outcome_of(
    value: Callable[[Flags], float | None], rules: SearchRules = RULES, knobs: tuple[Knob, ...] = (SLOTS, BATCH, MODE)
) -> TuneOutcome:
    space = msgspec.structs.replace(space_of(*knobs), vetoes=({"--mode": "c"},))
    starts, progress = run(space, value, rules, session="s")
    return tune_outcome(space, progress, starts, "out_tps", budget_s=rules.budget_s, command="c", given="g")


def test_outcome_says_what_to_change_what_did_not_matter_and_what_was_not_tried() -> None:
    found = outcome_of(peaked)
    assert found.code == "confirmed" and found.sentence.startswith("--slots 2 → 8, --mode a → b: 100.0 → 240.0 tok/s")
    assert "confirmed by ab (4 v 4 starts)" in found.sentence
    assert {effect.knob for effect in found.effects} == {"--slots", "--batch", "--mode"}
    assert (found.not_tried[0].what, found.not_tried[0].code) == ("--mode c", "vetoed")


def test_what_disturbs_starts_in_turn_leaves_their_verdict_and_what_favours_one_does_not() -> None:
    space = space_of(SLOTS, BATCH, MODE)

    def outcome(**found: tuple[str, ...]) -> TuneOutcome:
        starts, progress = run(space, peaked, RULES, session="s", **found)
        return tune_outcome(space, progress, starts, "out_tps", budget_s=RULES.budget_s, command="c", given="g")

    busy = outcome(disturbances=("the host was busy",))
    assert busy.code == "confirmed" and "not sure" not in busy.sentence
    assert busy.note.startswith("the host was busy in some runs")
    cached = outcome(doubts=("the server's prefix cache was used",))
    assert cached.code == "not_sure" and "confirmed" not in cached.sentence


def test_values_without_a_start_did_not_gain_only_if_nearer_ones_did_not() -> None:
    short = outcome_of(lambda flags: 100.0, RULES._replace(budget_s=30.0), (SLOTS, BATCH))
    assert [(row.what, row.reason) for row in short.not_tried] == [
        ("--slots 1, 4", "the budget ended before its turn"),
        ("--slots 16", "values nearer to the best did not gain"),  # 8 did not
        ("--batch", "the budget ended before its turn"),
    ]
    large = msgspec.structs.replace(SLOTS, values=tuple(range(1, 41)), default=1)
    capped = outcome_of(lambda flags: 100.0 / int(flags.get("--slots", 1)), knobs=(large,))
    assert {row.code for row in capped.not_tried} <= {"direction", "promise"}
    beside = outcome_of(lambda flags: 100.0, knobs=(msgspec.structs.replace(large, default=20),))
    assert ("--slots 19, 21", "promise") in [(row.what, row.code) for row in beside.not_tried]
    none = outcome_of(lambda flags: 100.0, RULES._replace(budget_s=15.0))
    assert none.sentence == "100.0 tok/s with the command; the budget ended before a change of it was measured"


def test_outcome_without_time_for_the_ab_test_says_how_long_it_takes_and_how_to_continue() -> None:
    found = outcome_of(lambda flags: 50.0 * int(flags.get("--slots", 2)), RULES._replace(budget_s=60.0))
    assert found.code == "not_tested" and found.sentence.endswith(
        "not confirmed: the budget ended before the A/B test, which takes about 3 min; the same command with a larger "
        "--budget continues"
    )


def test_searches_that_found_no_limit_do_not_say_that_the_command_is_best() -> None:
    space = space_of(SLOTS)
    for high, words in (
        (None, "4 agents or more with the command: no search was"),
        (7, "the command is best: 4 agents"),
    ):
        starts, progress = run(space, lambda flags: 100.0, AGENTS, agents=4, agents_low=4, agents_high=high)
        found = tune_outcome(space, progress, starts, "agents", budget_s=3600.0, command="c", given="g")
        assert found.code == "no_gain" and found.sentence.startswith(words)


def test_outcome_of_a_command_that_fails_has_the_line_of_its_log() -> None:
    assert outcome_of(lambda flags: None).sentence == "the command itself failed: CUDA out of memory"


def test_error_line_prefers_memory_then_flags_then_any_error() -> None:
    lines = ("Error: x", "torch.OutOfMemoryError: CUDA out of memory", "shutting down")
    assert error_line(start({}, None, log=lines)) == lines[1]
    assert error_line(start({}, None, log=("Error: x", "bye"))) == "Error: x"
    assert error_line(start({}, None, log=("bye",))) == "exited with code 1"


@given(st.data())
@settings(max_examples=10)
def test_every_search_ends_and_asks_for_no_refused_configuration(data: st.DataObject) -> None:
    knobs = data.draw(st.lists(st.sampled_from((SLOTS, BATCH, MODE)), min_size=1, unique_by=lambda knob: knob.name))
    space = space_of(*knobs)
    values: dict[str, float | None] = {}

    def value(flags: Flags) -> float | None:
        key = configuration_key(flags)
        if key not in values:
            values[key] = data.draw(st.none() | st.floats(50.0, 200.0)) if flags else 100.0
        return values[key]

    starts, progress = run(space, value)
    assert all(space.refuse(start.flags) is None for start in starts)
    crashed = {configuration_key(start.flags) for start in starts if start.state == "broken"}
    assert progress.winner is None or configuration_key(progress.winner) not in crashed
    assert all(isinstance(crash, Crash) and crash.line for crash in progress.crashes)
