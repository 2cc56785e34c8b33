from __future__ import annotations

import pytest

from swarmtui.experiments.grid import (
    cells_of,
    command_launch,
    digest_of,
    fewer,
    key_of,
    launch_of,
    rounds_of,
    shuffled,
    survivors,
)
from swarmtui.model.plan import Requests
from swarmtui.model.schema import BadInput
from swarmtui.model.tuning import CellRow, Flags, TuneFile, flags_text, read_tune


def tune(text: str) -> TuneFile:
    return read_tune(text, "tune.toml")


GRID = """
command = "vllm serve m --port {port}"
[grid]
"--max-num-seqs" = [2, 4]
"--enforce-eager" = [true, false]
"VLLM_USE_V1" = [1]
"""


def test_a_grid_is_every_combination_and_cells_come_behind_it_without_repeats() -> None:
    cells = cells_of(tune(GRID + '[[cells]]\n"--max-num-seqs" = 8\n[[cells]]\n"--max-num-seqs" = 8\n'))
    assert len(cells) == 5
    assert cells[0] == {"--max-num-seqs": 2, "--enforce-eager": True, "VLLM_USE_V1": 1}
    assert cells[-1] == {"--max-num-seqs": 8}


def test_flags_go_behind_the_command_and_capitals_into_the_environment() -> None:
    file = tune(GRID)
    on, off = (launch_of(file, flags, 8123) for flags in cells_of(file)[:2])
    assert on.words == ("vllm", "serve", "m", "--port", "8123", "--max-num-seqs", "2", "--enforce-eager")
    assert off.words == ("vllm", "serve", "m", "--port", "8123", "--max-num-seqs", "2")
    assert on.env == {"VLLM_USE_V1": "1"}
    assert on.url == "http://127.0.0.1:8123" and on.ready == "http://127.0.0.1:8123/v1/models"
    assert str(on).startswith("VLLM_USE_V1=1 vllm serve m")


def test_a_flag_that_the_command_names_is_filled_in_there() -> None:
    file = tune(
        'command = "docker run -p {port}:8000 image --n={--n}"\nstop = "docker stop s{--n}"\nready = "/health"\n'
        '[grid]\n"--n" = [3]\n'
    )
    launch = launch_of(file, {"--n": 3}, 9)
    assert launch.words == ("docker", "run", "-p", "9:8000", "image", "--n=3")
    assert launch.stop == ("docker", "stop", "s3")
    assert launch.ready == "http://127.0.0.1:9/health"


def test_no_shell_reads_the_command() -> None:
    file = tune('command = "serve {port} $HOME; rm -r x"\n[grid]\n"--n" = ["a b"]\n')
    assert launch_of(file, {"--n": "a b"}, 1).words == ("serve", "1", "$HOME;", "rm", "-r", "x", "--n", "a b")


def test_a_command_without_a_port_needs_an_address() -> None:
    with pytest.raises(BadInput, match=r"put \{port\}"):
        command_launch("serve --port 8000", None, 1, "--a")
    assert command_launch("serve", "http://box:8000", 1, "--a").ready == "http://box:8000/v1/models"


def test_the_order_is_by_chance_but_the_same_for_the_same_seed() -> None:
    cells: list[Flags] = [{"--n": n} for n in range(12)]
    assert shuffled(cells, 3, 0) == shuffled(list(reversed(cells)), 3, 0)
    assert shuffled(cells, 3, 0) != shuffled(cells, 4, 0)
    assert shuffled(cells, 3, 0) != shuffled(cells, 3, 1)
    assert sorted(map(key_of, shuffled(cells, 3, 0))) == sorted(map(key_of, cells))


def test_more_flags_keep_what_is_measured_another_plan_does_not() -> None:
    more = GRID.replace("[2, 4]", "[2, 4, 8]")
    assert digest_of(tune(more)) == digest_of(tune(GRID))
    assert digest_of(tune(GRID + "[plan]\nruns = 2\n")) != digest_of(tune(GRID))


def test_halving_ends_with_all_requests_for_the_few_best() -> None:
    grid = '[grid]\n"--n" = [1,2,3,4,5,6,7,8,9]\n"--m" = [1,2,3]\n'
    text = f'command = "x {{port}}"\n{grid}[halving]\nfactor = 3\nrounds = 3\n'
    rounds = rounds_of(tune(text))
    assert [(r.cells, round(r.share, 3)) for r in rounds] == [(27, 0.111), (9, 0.333), (3, 1.0)]
    assert fewer(Requests(count=9), rounds[0].share) == Requests(count=1)
    assert fewer(Requests(count=4), 0.01).count == 1
    assert len(rounds_of(tune(GRID))) == 1


def test_the_best_go_on_and_broken_ones_never() -> None:
    rows = [
        CellRow(flags={"--n": 1}, state="done", out_tps=10.0, ttft_s=0.5),
        CellRow(flags={"--n": 2}, state="done", out_tps=30.0, ttft_s=0.9),
        CellRow(flags={"--n": 3}, state="broken", reason="x"),
        CellRow(flags={"--n": 4}, state="done", out_tps=20.0, ttft_s=None),
    ]
    assert survivors(rows, 2, "out_tps") == [{"--n": 2}, {"--n": 4}]
    assert survivors(rows, 2, "ttft_s") == [{"--n": 1}, {"--n": 2}]
    assert survivors(rows, 9, "out_tps") == [{"--n": 2}, {"--n": 4}, {"--n": 1}]


def test_flags_read_as_people_write_them() -> None:
    flags = {"--n": 4, "--eager": True, "--off": False, "OMP_NUM_THREADS": 2}
    assert flags_text(flags) == "--n 4 --eager OMP_NUM_THREADS=2"
    assert flags_text({}) == "no flags"
