"""`swarmtui run` from the command line to the files that it leaves."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import SHORT, SIM, Place, Ran, place_in
from tests.cli.scripted import scripted, words

SPREADS = ("ttft_s", "tpot_s", "icl_s", "e2e_s")
SPREAD_FIELDS = {"n", "mean", "min", "p50", "p90", "p95", "p99", "max"}
LEVEL_FIELDS = {
    "c", "runs", "n", "ok", "errors", "cap_hits", "wall_s", "c_achieved", "token_source", "out_tps_wall",
    "out_tps_steady", "prompt_tps", "total_tps", "per_stream_tps", *SPREADS, "contention", "rate_speedup",
    "wall_speedup", "token_ratio", "pass_rate",
}  # fmt: skip
REQUEST_FIELDS = {
    "id", "c", "run", "phase", "agent", "endpoint", "t_sched_ns", "t_sent_ns", "t_headers_ns", "t_first_ns",
    "t_first_content_ns", "t_last_ns", "t_done_ns", "stamp", "chunks", "tokens_in", "tokens_out", "cached_tokens",
    "token_source", "finish_reason", "error", "verdict",
}  # fmt: skip


class Sweep:
    """One `run --json` on the simulator that several tests read."""

    def __init__(self, place: Place, ran: Ran) -> None:
        self.place, self.ran = place, ran
        self.summary: dict[str, Any] = json.loads(ran.out)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with place_in(tmp_path_factory.mktemp("sweep")) as place:
        ran = place.measure(
            SIM, *SHORT, "--levels", "1,2", "--requests", "3", "--runs", "2", "--json", "--seed", "5",
            "--label", "two seats", "--note", "a note", "--tag", "gpu=none", "--tag", "who=me",
            "--server-flags", "--max-num-seqs 4",
        )  # fmt: skip
        assert ran.code == 0, ran
        yield Sweep(place, ran)


def test_a_sweep_prints_its_table_on_stdout_and_its_progress_on_stderr(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "1,2")
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[0].startswith("|") and " C" in lines[0].replace("|", " ")
    rows = [re.sub(r"[|▸ ]+", " ", line).split()[:3] for line in lines[2:4]]
    assert rows == [["1", "4", "0"], ["2", "8", "0"]]
    assert "C=1" in ran.err and "C=2" in ran.err
    assert f"saved: {place.session}" in ran.err
    assert "|" not in ran.err and "saved" not in ran.out


def test_quiet_says_only_where_the_session_lies(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "1", "--quiet")
    assert (ran.code, ran.err) == (0, f"saved: {place.session}\n")


def test_json_has_every_field_of_the_contract(sweep: Sweep) -> None:
    assert [level["c"] for level in sweep.summary["levels"]] == [1, 2]
    for level in sweep.summary["levels"]:
        assert level.keys() >= LEVEL_FIELDS
        assert level["per_stream_tps"].keys() >= {"mean", "min", "p50", "max"}
        for name in SPREADS:
            assert level[name].keys() >= SPREAD_FIELDS


def test_too_few_samples_are_null_and_never_0(sweep: Sweep) -> None:
    for level in sweep.summary["levels"]:
        assert level["ttft_s"]["n"] == 6
        assert level["ttft_s"]["p50"] is not None
        assert [level["ttft_s"][name] for name in ("p90", "p95", "p99")] == [None] * 3
        assert level["pass_rate"] is None
    assert sweep.summary["levels"][1]["contention"] is not None


def test_a_median_needs_five(place: Place) -> None:
    ran = place.measure(SIM, *SHORT, "--levels", "2", "--requests", "3", "--json")
    (level,) = json.loads(ran.out)["levels"]
    assert (level["n"], level["ok"], level["ttft_s"]["n"]) == (3, 3, 3)
    assert level["ttft_s"]["p50"] is None and level["ttft_s"]["mean"] > 0
    assert level["per_stream_tps"]["p50"] is None
    assert (level["contention"], level["rate_speedup"]) == (None, None)


def test_runs_are_counted_one_by_one(sweep: Sweep) -> None:
    for level in sweep.summary["levels"]:
        assert (level["runs"], level["n"]) == (2, 6)
        assert [(run["run"], run["n"]) for run in level["by_run"]] == [(1, 3), (2, 3)]


def test_what_is_printed_is_what_is_saved(sweep: Sweep) -> None:
    detail = sweep.place.detail()
    assert detail["schema"] == 1
    assert {key: detail[key] for key in sweep.summary} == sweep.summary
    assert sweep.place.shown() == sweep.summary
    summary = tomllib.loads((sweep.place.session / "summary.toml").read_text())
    assert [level["c"] for level in summary["levels"]] == [1, 2]
    assert (summary["state"], summary["simulated"]) == ("done", True)


def test_every_request_is_saved_with_its_stamps(sweep: Sweep) -> None:
    requests = sweep.place.detail()["requests"]
    measured = [request for request in requests if request["phase"] == "level"]
    assert len(measured) == 12 and len(requests) == 12 + sweep.summary["warmup_requests"]
    for request in measured:
        assert request.keys() >= REQUEST_FIELDS
        assert request["t_sent_ns"] < request["t_first_ns"] <= request["t_last_ns"] <= request["t_done_ns"]
        assert (request["tokens_out"], request["error"], request["token_source"]) == (8, None, "usage")
    assert len({request["id"] for request in requests}) == len(requests)


def test_label_note_tags_and_server_flags_are_kept(sweep: Sweep) -> None:
    session = sweep.summary["session"]
    assert (session["label"], session["note"], session["server_flags"]) == ("two seats", "a note", "--max-num-seqs 4")
    assert session["tags"] == {"gpu": "none", "who": "me"}
    shown = sweep.place.run("sessions", "show", "last", "--session-dir", str(sweep.place.sessions)).out
    for kept in ("two seats", "a note", "--max-num-seqs 4", "gpu=none, who=me"):
        assert kept in shown


def test_only_the_owner_may_read_a_session(sweep: Sweep) -> None:
    directory = sweep.place.session
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes.keys() == {"journal.jsonl", "detail.json", "summary.toml", "index.json"}
    assert set(modes.values()) == {0o600}


def asked_with(place: Place, *words_given: str) -> list[Any]:
    with scripted() as server:
        ran = place.measure(server.url, "--levels", "1", "--requests", "4", *words_given)
        assert ran.code == 0, ran
        return [asked.body["messages"] for asked in server.asked]


def test_the_same_seed_asks_the_same_and_nothing_twice(place: Place) -> None:
    first = asked_with(place, "--seed", "7")
    assert asked_with(place, "--seed", "7") == first
    other = asked_with(place, "--seed", "8")
    texts = [json.dumps(messages) for messages in first + other]
    assert len(set(texts)) == len(texts) == 2 * 5


def test_without_a_seed_each_session_asks_anew(place: Place) -> None:
    assert asked_with(place) != asked_with(place)


def test_without_warm_up_the_server_sees_the_level_and_no_more(place: Place) -> None:
    with scripted() as server:
        ran = place.measure(server.url, "--levels", "2", "--requests", "3", "--warmup", "none", "--json")
        assert len(server.asked) == 3
    summary = json.loads(ran.out)
    assert (summary["warmup_requests"], summary["levels"][0]["n"]) == (0, 3)


def test_warm_up_is_counted_apart(place: Place) -> None:
    with scripted() as server:
        ran = place.measure(server.url, "--levels", "1", "--requests", "2", "--warmup", "3", "--json")
        assert len(server.asked) == 5
    summary = json.loads(ran.out)
    assert (summary["warmup_requests"], summary["levels"][0]["n"]) == (3, 2)


def test_a_duration_ends_new_requests_and_lets_old_ones_finish(place: Place) -> None:
    with scripted(words(5, gap_s=0.02)) as server:
        ran = place.measure(server.url, "--levels", "2", "--duration", "700ms", "--json", "--warmup", "none")
        assert ran.code == 0, ran
    (level,) = json.loads(ran.out)["levels"]
    sent = [request["t_sent_ns"] for request in place.detail()["requests"]]
    assert level["complete"] and level["cancelled"] == level["errors"] == 0
    assert level["n"] == len(server.completed) > 2
    assert max(sent) - min(sent) < 0.8e9


def test_cap_and_temperature_reach_the_server(place: Place) -> None:
    with scripted() as server:
        place.measure(server.url, "--levels", "1", "--requests", "1", "--max-tokens", "33", "--temperature", "0.5")
    body = server.asked[-1].body
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (33, 0.5, True)


def test_a_conversation_is_fed_with_the_models_own_answers(place: Place) -> None:
    workload = place.home / "talk.toml"
    workload.write_text(
        'kind = "conversation"\nname = "talk"\n[[conversations]]\nturns = ["first question", "second question"]\n'
    )
    with scripted(words(2, text="reply")) as server:
        ran = place.measure(
            server.url, "--workload", str(workload), "--levels", "1", "--requests", "2", "--warmup", "none", "--json"
        )
        assert ran.code == 0, ran
    turns = [asked.body["messages"] for asked in server.asked]
    assert [len(messages) for messages in turns] == [1, 3, 1, 3]
    assert turns[1][0] == turns[0][0]
    assert turns[1][1:] == [
        {"role": "assistant", "content": "reply0 reply1 "}, {"role": "user", "content": "second question"},
    ]  # fmt: skip
    assert json.loads(ran.out)["levels"][0]["n"] == 4


def test_random_prompts_have_the_length_that_was_asked_for(place: Place) -> None:
    workload = place.home / "random.toml"
    workload.write_text('kind = "random"\nname = "mine"\ninput_tokens = 600\noutput_tokens = 5\n')
    ran = place.measure(SIM, "--workload", str(workload), "--levels", "2", "--json")
    assert ran.code == 0, ran
    requests = [request for request in place.detail()["requests"] if request["phase"] == "level"]
    assert len(requests) == 8
    for request in requests:
        assert request["tokens_in"] == pytest.approx(600, rel=0.02)
        assert request["tokens_out"] == 5
    assert json.loads(ran.out)["session"]["prompt_tokens_by"] == "tokenize"


def test_two_endpoints_share_the_load(place: Place) -> None:
    with scripted(words(3, gap_s=0.01)) as one, scripted(words(3, gap_s=0.01)) as two:
        ran = place.measure(one.url, "--endpoint", two.url, "--levels", "4", "--warmup", "none", "--json")
        assert ran.code == 0, ran
        assert len(one.completed) + len(two.completed) == 16
        assert len(one.completed) > 4 and len(two.completed) > 4
    assert {request["endpoint"] for request in place.detail()["requests"]} == {one.url, two.url}


def test_sessions_lie_in_the_data_directory_unless_told_otherwise(place: Place) -> None:
    ran = place.run("run", "--endpoint", SIM, *SHORT, "--levels", "1", "--requests", "1")
    assert ran.code == 0, ran
    (found,) = (place.home / "data" / "swarmtui" / "sessions").iterdir()
    assert Path(ran.err.splitlines()[-1].removeprefix("saved: ")) == found
