"""`swarmtui run` from its command line to the files it writes."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from swarmtui.model.base import SCHEMA_VERSION
from swarmtui.sessions.journal import read_journal
from tests.cli.programs import SHORT, SIM, CommandResult, Sandbox, open_sandbox
from tests.cli.scripted_server import respond_with_words, scripted_server

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
    """One `run --json` on the simulator, shared by several tests."""

    def __init__(self, sandbox: Sandbox, ran: CommandResult) -> None:
        self.sandbox, self.ran = sandbox, ran
        self.summary: dict[str, Any] = json.loads(ran.out)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with open_sandbox(tmp_path_factory.mktemp("sweep")) as sandbox:
        ran = sandbox.run_benchmark(
            SIM, *SHORT, "--levels", "1,2", "--requests", "3", "--complete", "--runs", "2", "--json", "--seed", "5",
            "--label", "two slots", "--note", "a note", "--tag", "gpu=none", "--tag", "who=me",
            "--server-flags", "--max-num-seqs 4",
        )  # fmt: skip
        assert ran.code == 0, ran
        yield Sweep(sandbox, ran)


def test_table_goes_to_stdout_and_progress_to_stderr(sandbox: Sandbox) -> None:
    ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1,2", "--fail-if", "ttft_p50>100s")
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[0].startswith("|") and " C" in lines[0].replace("|", " ")
    rows = [re.sub(r"[|▸ ]+", " ", line).split()[:2] for line in lines[2:4]]
    assert rows[0] == ["1", "5"] and rows[1] in (["2", "5"], ["2", "6"]), "6 were sent, 5 or 6 ended"
    assert "C=1" in ran.err and "C=2" in ran.err
    assert f"saved: {sandbox.session}" in ran.err
    assert "|" not in ran.err and "saved" not in ran.out


def test_json_has_all_contract_fields(sweep: Sweep) -> None:
    assert [level["c"] for level in sweep.summary["levels"]] == [1, 2]
    for level in sweep.summary["levels"]:
        assert level.keys() >= LEVEL_FIELDS
        assert level["per_stream_tps"].keys() >= {"mean", "min", "p50", "max"}
        for name in SPREADS:
            assert level[name].keys() >= SPREAD_FIELDS


def test_too_few_samples_are_null(sweep: Sweep) -> None:
    for level in sweep.summary["levels"]:
        assert 4 <= level["ttft_s"]["n"] < 29, "of all requests whose first token arrived in the window"
        assert (level["ttft_s"]["p50"] is not None) == (level["ttft_s"]["n"] >= 5)
        assert [level["ttft_s"][name] for name in ("p90", "p95", "p99")] == [None] * 3
        assert level["pass_rate"] is None
    assert sweep.summary["levels"][1]["contention"] is not None


def test_runs_are_summarised_separately(sweep: Sweep) -> None:
    for level in sweep.summary["levels"]:
        assert (level["runs"], level["n"]) == (2, 6)
        assert [(run["run"], run["n"]) for run in level["by_run"]] == [(1, 3), (2, 3)]


def test_printed_summary_equals_saved_summary(sweep: Sweep) -> None:
    detail = sweep.sandbox.detail()
    assert detail["schema"] == SCHEMA_VERSION
    assert {key: detail[key] for key in sweep.summary} == sweep.summary
    assert sweep.sandbox.show_session() == sweep.summary
    summary = tomllib.loads((sweep.sandbox.session / "summary.toml").read_text())
    assert [level["c"] for level in summary["levels"]] == [1, 2]
    assert (summary["state"], summary["simulated"]) == ("done", True)


def test_every_request_is_saved_with_timestamps(sweep: Sweep) -> None:
    requests = sweep.sandbox.detail()["requests"]
    measured = [request for request in requests if request["phase"] == "level"]
    by_phase = Counter(request["phase"] for request in requests)
    assert by_phase["level"] == 12 and by_phase["warmup"] == sweep.summary["warmup_requests"]
    assert by_phase["preroll"] >= 2 * 2, "at least one per stream and run, but none at C=1"
    for request in measured:
        assert request.keys() >= REQUEST_FIELDS
        assert request["t_sent_ns"] < request["t_first_ns"] <= request["t_last_ns"] <= request["t_done_ns"]
        assert (request["tokens_out"], request["error"], request["token_source"]) == (8, None, "usage")
    assert len({request["id"] for request in measured}) == len(measured)


def test_label_note_tags_and_server_flags_are_saved(sweep: Sweep) -> None:
    session = sweep.summary["session"]
    assert (session["label"], session["note"], session["server_flags"]) == ("two slots", "a note", "--max-num-seqs 4")
    assert session["tags"] == {"gpu": "none", "who": "me"}
    shown = sweep.sandbox.run("sessions", "show", "last", "--session-dir", str(sweep.sandbox.sessions)).out
    for text in ("two slots", "a note", "--max-num-seqs 4", "gpu=none, who=me"):
        assert text in shown


def test_session_is_readable_by_its_owner_only(sweep: Sweep) -> None:
    directory = sweep.sandbox.session
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes.keys() == {"journal.jsonl", "detail.json", "summary.toml", "index.json"}
    assert set(modes.values()) == {0o600}


def prompts_sent(sandbox: Sandbox, *arguments: str) -> list[Any]:
    with scripted_server() as server:
        ran = sandbox.run_benchmark(server.url, "--levels", "1", "--requests", "4", *arguments)
        assert ran.code == 0, ran
        # One warm-up, one pre-roll and four measured requests; the number of fillers depends on time.
        return [request.body["messages"] for request in server.received][:6]


def test_same_seed_sends_the_same_prompts_without_repeats(sandbox: Sandbox) -> None:
    """Each run has a seed of its own if none is given."""
    first = prompts_sent(sandbox, "--seed", "7")
    assert prompts_sent(sandbox, "--seed", "7") == first
    texts = [json.dumps(messages) for messages in (*first, *prompts_sent(sandbox), *prompts_sent(sandbox))]
    assert len(set(texts)) == len(texts) == 3 * 6


def test_without_warm_up_only_the_level_is_sent_and_its_median_needs_five_samples(sandbox: Sandbox) -> None:
    with scripted_server() as server:
        chosen = ("--levels", "2", "--requests", "3", "--complete", "--warmup", "none")
        ran = sandbox.run_benchmark(server.url, *chosen, "--json")
    summary = json.loads(ran.out)
    (level,) = summary["levels"]
    assert (summary["warmup_requests"], level["n"], level["ok"], level["e2e_s"]["n"]) == (0, 3, 3, 3)
    assert {request["phase"] for request in sandbox.detail()["requests"]} <= {"preroll", "level", "filler"}
    assert level["e2e_s"]["p50"] is None and level["e2e_s"]["mean"] > 0
    assert level["per_stream_tps"]["p50"] is None
    assert (level["contention"], level["rate_speedup"]) == (None, None)


def test_duration_stops_new_requests_and_with_complete_waits_for_the_rest(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_words(5, gap_s=0.02)) as server:
        chosen = ("--levels", "2", "--duration", "700ms", "--complete", "--warmup", "none")
        ran = sandbox.run_benchmark(server.url, *chosen, "--json")
        assert ran.code == 0, ran
    (level,) = json.loads(ran.out)["levels"]
    sent = [request["t_sent_ns"] for request in sandbox.detail()["requests"] if request["phase"] == "level"]
    assert level["complete"] and level["unfinished"] == level["errors"] == 0
    assert level["n"] == len(sent) > 2
    assert max(sent) - min(sent) < 2e9  # a busy machine stops late


def test_max_tokens_and_temperature_are_sent_and_the_warm_up_is_counted_separately(sandbox: Sandbox) -> None:
    sent = ("--max-tokens", "33", "--temperature", "0.5")
    with scripted_server() as server:
        ran = sandbox.run_benchmark(server.url, "--levels", "1", "--requests", "2", "--warmup", "3", *sent, "--json")
    summary = json.loads(ran.out)
    assert (summary["warmup_requests"], summary["levels"][0]["n"]) == (3, 2)
    body = server.received[-1].body
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (33, 0.5, True)


def test_conversation_includes_the_responses_of_the_model(sandbox: Sandbox) -> None:
    workload = sandbox.home / "talk.toml"
    workload.write_text(
        'kind = "conversation"\nname = "talk"\n[[conversations]]\nturns = ["first question", "second question"]\n'
    )
    with scripted_server(respond_with_words(2, text="reply")) as server:
        ran = sandbox.run_benchmark(
            server.url, "--workload", str(workload), "--levels", "1", "--requests", "2", "--warmup", "none", "--json"
        )
        assert ran.code == 0, ran
    turns = [request.body["messages"] for request in server.received]
    assert [len(messages) for messages in turns[:5]] == [1, 3, 1, 3, 1]
    assert turns[1][0] == turns[0][0]
    assert turns[1][1:] == [
        {"role": "assistant", "content": "reply0 reply1 "}, {"role": "user", "content": "second question"},
    ]  # fmt: skip
    summary = json.loads(ran.out)
    assert summary["levels"][0]["n"] == 4
    assert summary["session"]["workload_file"] == str(workload), "a command that runs it again names the file"
    phases = [request["phase"] for request in sandbox.detail()["requests"]]
    assert phases[:5] == ["level"] * 4 + ["filler"], "each turn has the phase of its task"


def test_random_prompts_have_the_requested_length(sandbox: Sandbox) -> None:
    workload = sandbox.home / "random.toml"
    workload.write_text('kind = "random"\nname = "mine"\ninput_tokens = 600\noutput_tokens = 5\n')
    ran = sandbox.run_benchmark(
        SIM, "--workload", str(workload), "--levels", "2", "--requests", "8", "--complete", "--json"
    )
    assert ran.code == 0, ran
    requests = [request for request in sandbox.detail()["requests"] if request["phase"] == "level"]
    assert len(requests) == 8
    for request in requests:
        assert request["tokens_in"] == pytest.approx(600, rel=0.02)
        assert request["tokens_out"] == 5
    assert json.loads(ran.out)["session"]["prompt_tokens_by"] == "tokenize"


def test_two_endpoints_share_the_load(sandbox: Sandbox) -> None:
    with (
        scripted_server(respond_with_words(3, gap_s=0.01)) as one,
        scripted_server(respond_with_words(3, gap_s=0.01)) as two,
    ):
        chosen = ("--levels", "4", "--requests", "16", "--complete", "--warmup", "none")
        ran = sandbox.run_benchmark(one.url, "--endpoint", two.url, *chosen, "--json")
        assert ran.code == 0, ran
        assert json.loads(ran.out)["levels"][0]["n"] == 16
        assert len(one.completed) > 4 and len(two.completed) > 4
    assert {request["endpoint"] for request in sandbox.detail()["requests"]} == {one.url, two.url}


def test_sessions_are_saved_in_the_data_directory_and_quiet_prints_only_their_path(sandbox: Sandbox) -> None:
    ran = sandbox.run("run", "--endpoint", SIM, *SHORT, "--levels", "1", "--requests", "1", "--quiet")
    (found,) = (sandbox.home / "data" / "swarmtui" / "sessions").iterdir()
    assert (ran.code, ran.err) == (0, f"saved: {found}\n")


def test_first_level_knows_the_slots_of_the_server(sandbox: Sandbox) -> None:
    """Answers that all reach their limit keep slots in step: those that get a slot at once are cut, and no others."""
    load = ("--levels", "8", "--max-tokens", "40", "--requests", "8")
    ran = sandbox.run_benchmark("sim:moe-tp1?slots=4&output.median=400", *load)
    assert ran.code == 0, ran
    records = sorted(read_journal(sandbox.session).records, key=lambda record: record.t_sent_ns or 0)
    prerolls = [record.tokens_out or 0 for record in records if record.phase == "preroll"]
    # On a busy machine a request may be sent before another that gets its slot first.
    assert len(prerolls) > 4 and max(prerolls) == 40 and sum(tokens < 40 for tokens in prerolls) in (2, 3)
