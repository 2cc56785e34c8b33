"""The command `limits`, and what the hardware allows in the result of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Sandbox, open_sandbox
from tests.cli.scripted_server import list_models, respond_with_words, scripted_server
from tests.telemetry.model_builders import dense_model, gguf_model

NO_SERVER = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path_factory.mktemp("limits")) as found:
        yield found


@pytest.fixture(scope="module")
def model(sandbox: Sandbox) -> Path:
    """A model in the cache of Hugging Face."""
    snapshot = sandbox.home / "hub" / "models--acme--tiny" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    dense_model(snapshot, "8b", "bf16", tied=False)
    return snapshot


def test_limits_of_a_directory_follow_the_contract(sandbox: Sandbox, model: Path) -> None:
    found = sandbox.json("limits", str(model), "--gpu", "H200", "--context", "2000", "--levels", "1,8,64", "--json")
    assert {"model", "gpu", "context", "levels"} <= found.keys()
    assert found["context"] == 2000 and found["gpu"]["name"] == "H200"
    one, eight, many = found["levels"]
    assert [level["c"] for level in found["levels"]] == [1, 8, 64]
    assert one["bytes_per_step"] == found["model"]["dense_bytes"] + 2000 * 3 * 2 * 8 * 128 * 2
    assert one["limit_tps"] == pytest.approx(4.8e12 / one["bytes_per_step"])
    assert one["limit_tps"] < eight["limit_tps"] < many["limit_tps"] and one["flops_per_step"] > 0
    assert {level["binds"] for level in found["levels"]} == {"bandwidth"}


def test_limits_are_shown_with_the_sources_of_their_figures(sandbox: Sandbox, model: Path) -> None:
    shown = sandbox.run("limits", str(model), "--gpu", "3090", "--tp", "2", "--kv-dtype", "fp8")
    assert shown.code == 0
    sources = ("read from the headers of its files", "NVIDIA GA102")
    text = " ".join(shown.out.split())
    for words in (*sources, "2 GPUs share each replica", "limit tok/s"):
        assert words in text, words


def test_gguf_file_is_read_by_its_path(sandbox: Sandbox) -> None:
    path = sandbox.home / "tiny.gguf"
    gguf_model(path, "0.6b", "Q4_K", tied=False, experts=64)
    found = sandbox.json("limits", str(path), "--gpu", "4090", "--json")
    assert (found["model"]["quantisation"], found["model"]["experts"]) == ("Q4_K", 64)
    assert found["levels"][1]["expected_tps"] < found["levels"][1]["limit_tps"]


def test_model_of_an_endpoint_is_found_without_load(sandbox: Sandbox, model: Path) -> None:
    with scripted_server(listing=lambda to: list_models(to, "acme/tiny")) as server:
        ran = sandbox.run("limits", server.url, "--gpu", "3090", "--json", env={"HF_HOME": str(sandbox.home)})
        assert not server.received
    assert ran.code == 0, ran
    assert json.loads(ran.out)["model"]["path"] == str(model)


def test_mistakes_name_what_to_do_and_have_their_exit_codes(sandbox: Sandbox, model: Path) -> None:
    with scripted_server(listing=lambda to: list_models(to, "acme/unknown")) as server:
        commands = [
            ("limits", str(sandbox.home / "nothing"), "--gpu", "3090"),
            ("limits", str(model), "--gpu", "Voodoo"),
            ("limits", str(model), "--gpu", "3090", "--levels", "1,x"),
            ("limits", "sim:moe-tp1", "--gpu", "3090"),
            ("limits", server.url, "--gpu", "3090"),
            ("limits", NO_SERVER, "--gpu", "3090"),
        ]
        no_file, no_gpu, no_level, simulator, no_model, no_server = sandbox.run_each(*commands)
    assert "no such file or directory" in no_file.error_line(2)
    assert "RTX 3090" in no_gpu.error_line(2)
    assert "'x' is not a whole number" in no_level.error_line(2)
    assert "has no model" in simulator.error_line(2)
    assert "acme/unknown" in no_model.error_line(2) and "--model-path" in no_model.err
    assert "no server listens" in no_server.error_line(3)


def test_run_stores_the_limit_and_derives_it_again(sandbox: Sandbox, model: Path) -> None:
    with scripted_server(respond_with_words(5, gap_s=0.02)) as server:
        options = ("--levels", "1,2", "--requests", "4", "--model-path", str(model), "--tag", "gpu=3090", "--json")
        ran = sandbox.run_benchmark(server.url, *options)
    assert ran.code == 0, ran
    result = json.loads(ran.out)
    found = result["speed_of_light"]
    assert found["model"]["path"] == str(model) and found["gpu"]["name"] == "RTX 3090"
    assert [level["c"] for level in found["levels"]] == [1, 2]
    one = found["levels"][0]
    assert one["share"] == pytest.approx(one["bytes_per_step"] / 936.2e9 / one["step_s"], rel=1e-6)
    assert sandbox.show_session("last")["speed_of_light"] == found
    shown = sandbox.run("sessions", "show", "last", "--session-dir", str(sandbox.sessions)).out
    assert "of the limit)" in shown


def test_unknown_model_path_of_a_run_is_refused(sandbox: Sandbox) -> None:
    ran = sandbox.run_benchmark(NO_SERVER, "--model-path", "/nowhere/at/all")
    assert "--model-path: /nowhere/at/all: no such file or directory" in ran.error_line(2)
