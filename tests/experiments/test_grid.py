from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.experiments.ab import ab_launch
from swarmtui.experiments.grid import (
    all_configurations,
    configurations_in_round,
    first_restart,
    launch_command,
    pending_configurations,
    round_title,
    scale_load,
    tune_digest,
    tune_rounds,
)
from swarmtui.model.base import BadInput
from swarmtui.model.load import Barrier, Closed, Open, Sessions
from swarmtui.model.tuning import (
    AbTest,
    Flags,
    Halving,
    Objective,
    Start,
    TuneFile,
    configuration_key,
    format_flags,
    parse_tune,
)


def tune(text: str) -> TuneFile:
    return parse_tune(text, "tune.toml")


GRID = """
command = "vllm serve m --port {port}"
[grid]
"--max-num-seqs" = [2, 4]
"--enforce-eager" = [true, false]
"VLLM_USE_V1" = [1]
"""


def test_grid_is_the_product_followed_by_the_listed_ones_without_duplicates() -> None:
    listed = '[[configurations]]\n"--max-num-seqs" = 8\n'
    found = all_configurations(tune(GRID + 2 * listed))
    assert len(found) == 5
    assert found[0] == {"--max-num-seqs": 2, "--enforce-eager": True, "VLLM_USE_V1": 1}
    assert found[-1] == {"--max-num-seqs": 8}


def test_flags_are_appended_and_capitals_go_to_the_environment() -> None:
    file = tune(GRID)
    on, off = (launch_command(file, flags, 8123) for flags in all_configurations(file)[:2])
    assert on.command == ("vllm", "serve", "m", "--port", "8123", "--max-num-seqs", "2", "--enforce-eager")
    assert off.command == ("vllm", "serve", "m", "--port", "8123", "--max-num-seqs", "2")
    assert on.env == {"VLLM_USE_V1": "1"}
    assert on.url == "http://127.0.0.1:8123" and on.ready == "http://127.0.0.1:8123/v1/models"
    assert str(on).startswith("VLLM_USE_V1=1 vllm serve m")


def test_placeholder_of_a_flag_is_replaced() -> None:
    file = tune(
        'command = "docker run -p {port}:8000 image --n={--n}"\nstop = "docker stop s{--n}"\nready = "/health"\n'
        '[grid]\n"--n" = [3]\n'
    )
    launch = launch_command(file, {"--n": 3}, 9)
    assert launch.command == ("docker", "run", "-p", "9:8000", "image", "--n=3")
    assert launch.stop == ("docker", "stop", "s3")
    assert launch.ready == "http://127.0.0.1:9/health"


def test_command_is_not_run_by_a_shell() -> None:
    file = tune('command = "serve {port} $HOME; rm -r x"\n[grid]\n"--n" = ["a b"]\n')
    assert launch_command(file, {"--n": "a b"}, 1).command == ("serve", "1", "$HOME;", "rm", "-r", "x", "--n", "a b")


def test_command_without_port_needs_a_url() -> None:
    test = AbTest(name="t", a="serve --port 8000", b="sim:moe-tp1", ready_within_s=5.0, pass_env=("HF_TOKEN",))
    with pytest.raises(BadInput, match=r"--a: put \{port\}"):
        ab_launch(test, "A", 1)
    assert ab_launch(test, "B", 1) is None
    launch = ab_launch(msgspec.structs.replace(test, url="http://box:8000"), "A", 1)
    assert launch is not None and launch.ready == "http://box:8000/v1/models"
    assert (launch.ready_within_s, launch.stop_within_s, launch.pass_env) == (5.0, 20.0, ("HF_TOKEN",))


def test_order_is_random_but_reproducible() -> None:
    def order(values: tuple[int, ...], seed: int) -> list[Flags]:
        file = TuneFile(command="x {port}", grid={"--n": values}, seed=seed)
        return pending_configurations(file, ())[1]

    values = tuple(range(12))
    assert order(values, 3) == order(values[::-1], 3)
    assert order(values, 3) != order(values, 4)
    assert sorted(map(configuration_key, order(values, 3))) == sorted(configuration_key({"--n": n}) for n in values)


def test_interrupted_tune_continues_in_the_same_order() -> None:
    file = TuneFile(command="x {port}", grid={"--n": tuple(range(12))})
    order = pending_configurations(file, ())[1]
    assert pending_configurations(file, [Start(flags=order[0])])[1] == order[1:]


def test_digest_depends_on_the_plan_but_not_on_the_flags() -> None:
    more = GRID.replace("[2, 4]", "[2, 4, 8]")
    assert tune_digest(tune(more)) == tune_digest(tune(GRID))
    assert tune_digest(tune(GRID + "[plan]\nruns = 2\n")) != tune_digest(tune(GRID))


def test_last_halving_round_has_all_requests() -> None:
    grid = '[grid]\n"--n" = [1,2,3,4,5,6,7,8,9]\n"--m" = [1,2,3]\n'
    text = f'command = "x {{port}}"\n{grid}[halving]\nfactor = 3\nrounds = 3\n'
    rounds = tune_rounds(tune(text))[:3]
    assert [(r.configurations, round(r.share, 3)) for r in rounds] == [(27, 0.111), (9, 0.333), (3, 1.0)]
    assert scale_load(Closed(requests="9C"), rounds[0].share) == Closed(requests="2C")
    assert scale_load(Closed(requests=400), 0.5) == Closed(requests=200)
    # With one request per stream, C − 1 of C would end after the first was gone.
    assert scale_load(Closed(requests="4C"), 0.01) == scale_load(Closed(requests="2C"), 0.5) == Closed(requests="2C")
    assert scale_load(Closed(requests="1C"), 0.5) == Closed(requests="1C")
    assert scale_load(Closed(levels=(1, 16), requests=40), 0.5) == Closed(levels=(1, 16), requests=32)
    assert scale_load(Closed(duration="30s"), 0.5) == Closed(duration="15s")
    assert scale_load(Open(rate=2.0), 0.5) == Open(rate=2.0, requests=50)
    for load in (Barrier(), Sessions()):
        assert scale_load(load, 0.5) == load


def test_best_advance_and_failed_ones_do_not() -> None:
    rows = [
        Start(flags={"--n": 1}, state="done", out_tps=10.0, ttft_s=0.5),
        Start(flags={"--n": 2}, state="done", out_tps=30.0, ttft_s=0.9),
        Start(flags={"--n": 3}, state="broken", reason="x"),
        Start(flags={"--n": 4}, state="done", out_tps=20.0, ttft_s=None),
    ]

    def advancing(objective: Objective, rows: list[Start]) -> list[Flags]:
        halving = Halving(factor=2, rounds=2)
        file = TuneFile(command="x {port}", grid={"--n": (1, 2, 3, 4)}, halving=halving, objective=objective)
        return list(configurations_in_round(file, rows, 1))

    assert advancing("out_tps", rows) == [{"--n": 2}, {"--n": 4}]
    assert advancing("ttft_s", rows) == [{"--n": 1}, {"--n": 2}]
    assert advancing("out_tps", rows[:1] + rows[2:3]) == [{"--n": 1}]


def test_configuration_that_fails_in_a_round_does_not_advance_with_an_earlier_result() -> None:
    file = TuneFile(command="x {port}", grid={"--n": tuple(range(8))}, halving=Halving(factor=2, rounds=3))
    first = [Start(flags={"--n": n}, out_tps=float(n + 1)) for n in range(8)]
    second = [Start(flags={"--n": n}, round=1, out_tps=float(n + 1)) for n in (4, 5)]
    failed = [Start(flags={"--n": n}, round=1, state="broken") for n in (6, 7)]
    assert configurations_in_round(file, [*first, *second, *failed], 2) == [{"--n": 5}, {"--n": 4}]
    assert configurations_in_round(file, [*first, *second[:1], *failed], 2) == [{"--n": 4}]


MANY = TuneFile(command="x {port}", grid={"--n": tuple(range(8))})


def measure_all(file: TuneFile, broken: tuple[tuple[int, int], ...] = ()) -> list[Start]:
    """Run a tune in which a larger --n is faster; `broken` are the rounds in which a value of it fails."""
    starts: list[Start] = []
    while (pending := pending_configurations(file, starts))[1]:
        round_, (flags, *_) = pending
        n = int(flags["--n"])
        state: Literal["done", "broken"] = "broken" if (round_.number, n) in broken else "done"
        starts.append(Start(flags=flags, round=round_.number, state=state, out_tps=100.0 + n))
    return starts


def test_best_three_of_many_are_restarted_three_times() -> None:
    starts = measure_all(MANY)
    assert len(starts) == 8 + 3 * 3
    assert [{start.flags["--n"] for start in starts if start.round == number} for number in (1, 2, 3)] == [
        {5, 6, 7}
    ] * 3
    assert [round_title(MANY, number) for number in range(4)] == ["", *(f"restart {k} of 3" for k in (1, 2, 3))]


def test_few_configurations_need_no_choice_and_are_all_started_three_times() -> None:
    file = TuneFile(command="x {port}", grid={"--n": (1, 2)})
    assert (first_restart(file), len(measure_all(file))) == (0, 6)
    assert round_title(file, 2) == "start 3 of 3"
    alone = TuneFile(command="x {port}", grid={"--n": (1,)})
    assert len(measure_all(alone)) == 1
    assert len(measure_all(msgspec.structs.replace(MANY, restarts=0))) == 8


def test_restarts_after_a_halving_take_the_best_of_its_last_rounds() -> None:
    file = msgspec.structs.replace(MANY, halving=Halving(factor=4, rounds=2))
    rounds = tune_rounds(file)
    assert [(r.configurations, r.share, r.restart) for r in rounds] == [
        (8, 0.25, 0), (2, 1.0, 0), (3, 1.0, 1), (3, 1.0, 2), (3, 1.0, 3),
    ]  # fmt: skip
    assert {start.flags["--n"] for start in measure_all(file) if start.round == 2} == {5, 6, 7}


def test_finalist_that_fails_is_not_restarted_again_and_one_alone_is_not_restarted() -> None:
    starts = measure_all(MANY, broken=((1, 7),))
    assert [sum(start.round == number for start in starts) for number in range(4)] == [8, 3, 2, 2]
    starts = measure_all(MANY, broken=tuple((0, n) for n in range(7)))
    assert len(starts) == 8


def test_more_restarts_continue_a_tune_and_more_flags_are_measured_first() -> None:
    done = measure_all(MANY)
    more = msgspec.structs.replace(MANY, restarts=5)
    assert tune_digest(more) == tune_digest(MANY)
    assert len(pending_configurations(more, done)[1]) == 3
    wider = msgspec.structs.replace(MANY, grid={"--n": (*range(8), 99)})
    round_, left = pending_configurations(wider, done)
    assert (round_.number, left) == (0, [{"--n": 99}])
    screened = [*done, Start(flags={"--n": 99}, out_tps=1000.0)]
    assert pending_configurations(wider, screened)[1] == [{"--n": 99}]


@given(st.integers(1, 12), st.integers(2, 4), st.integers(0, 4), st.integers(0, 10**6))
def test_interrupted_tune_makes_the_starts_of_an_uninterrupted_one(
    count: int, finalists: int, restarts: int, cut: int
) -> None:
    file = TuneFile(command="x {port}", grid={"--n": tuple(range(count))}, finalists=finalists, restarts=restarts)
    whole = measure_all(file)
    left = whole[cut % (len(whole) + 1) :]
    found = pending_configurations(file, whole[: len(whole) - len(left)])[1]
    assert found[:1] == [start.flags for start in left[:1]]


def test_flags_are_formatted_as_on_a_command_line() -> None:
    flags = {"--n": 4, "--eager": True, "--off": False, "OMP_NUM_THREADS": 2}
    assert format_flags(flags) == "--n 4 --eager OMP_NUM_THREADS=2"
    assert format_flags({}) == "no flags"
