from __future__ import annotations

import pytest

from swarmtui.experiments.grid import (
    all_configurations,
    configuration_key,
    halving_rounds,
    launch_command,
    launch_for_command,
    scale_requests,
    shuffled,
    survivors,
    tune_digest,
)
from swarmtui.model.base import BadInput
from swarmtui.model.plan import Requests
from swarmtui.model.tuning import Flags, TuneFile, TuneResult, format_flags, parse_tune


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
    with pytest.raises(BadInput, match=r"put \{port\}"):
        launch_for_command("serve --port 8000", None, 1, "--a")
    assert launch_for_command("serve", "http://box:8000", 1, "--a").ready == "http://box:8000/v1/models"


def test_order_is_random_but_reproducible() -> None:
    listed: list[Flags] = [{"--n": n} for n in range(12)]
    assert shuffled(listed, 3, 0) == shuffled(list(reversed(listed)), 3, 0)
    assert shuffled(listed, 3, 0) != shuffled(listed, 4, 0)
    assert shuffled(listed, 3, 0) != shuffled(listed, 3, 1)
    assert sorted(map(configuration_key, shuffled(listed, 3, 0))) == sorted(map(configuration_key, listed))


def test_digest_depends_on_the_plan_but_not_on_the_flags() -> None:
    more = GRID.replace("[2, 4]", "[2, 4, 8]")
    assert tune_digest(tune(more)) == tune_digest(tune(GRID))
    assert tune_digest(tune(GRID + "[plan]\nruns = 2\n")) != tune_digest(tune(GRID))


def test_last_halving_round_has_all_requests() -> None:
    grid = '[grid]\n"--n" = [1,2,3,4,5,6,7,8,9]\n"--m" = [1,2,3]\n'
    text = f'command = "x {{port}}"\n{grid}[halving]\nfactor = 3\nrounds = 3\n'
    rounds = halving_rounds(tune(text))
    assert [(r.configurations, round(r.share, 3)) for r in rounds] == [(27, 0.111), (9, 0.333), (3, 1.0)]
    assert scale_requests(Requests(count=9), rounds[0].share) == Requests(count=1)
    assert scale_requests(Requests(count=4), 0.01).count == 1
    assert len(halving_rounds(tune(GRID))) == 1


def test_best_advance_and_failed_ones_do_not() -> None:
    rows = [
        TuneResult(flags={"--n": 1}, state="done", out_tps=10.0, ttft_s=0.5),
        TuneResult(flags={"--n": 2}, state="done", out_tps=30.0, ttft_s=0.9),
        TuneResult(flags={"--n": 3}, state="broken", reason="x"),
        TuneResult(flags={"--n": 4}, state="done", out_tps=20.0, ttft_s=None),
    ]
    assert survivors(rows, 2, "out_tps") == [{"--n": 2}, {"--n": 4}]
    assert survivors(rows, 2, "ttft_s") == [{"--n": 1}, {"--n": 2}]
    assert survivors(rows, 9, "out_tps") == [{"--n": 2}, {"--n": 4}, {"--n": 1}]


def test_flags_are_formatted_as_on_a_command_line() -> None:
    flags = {"--n": 4, "--eager": True, "--off": False, "OMP_NUM_THREADS": 2}
    assert format_flags(flags) == "--n 4 --eager OMP_NUM_THREADS=2"
    assert format_flags({}) == "no flags"
