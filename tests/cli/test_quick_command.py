"""`swarmtui quick` on the simulator: seven lines on stdout, the same answer as JSON, and no server at all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import click
import msgspec
import pytest

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.cli import search
from swarmtui.cli.app import report_and_exit
from swarmtui.cli.run_options import NoServerFound
from swarmtui.model.client_protocol import Ended
from swarmtui.model.journal import ServerEntry
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.report.comparison import answer_lines
from swarmtui.session_process.session_head import compared_border
from swarmtui.sessions import store
from swarmtui.tui.app import AppResult
from tests.cli.programs import Sandbox, TerminalProgram
from tests.cli.scripted_server import respond_with_words, scripted_server
from tests.sessions.session_builders import full_session, write_session

# One slot: with a second agent, each request waits for a whole answer of about 240 ms.
FAST = ("sim:moe-tp1?slots=1&output.cv=0", "--max-tokens", "40", "--slo", "ttft_p50=120ms", "--budget", "20s")


def test_six_lines_answer_the_three_questions(sandbox: Sandbox) -> None:
    ran = sandbox.run("quick", *FAST, "--session-dir", str(sandbox.sessions))
    assert ran.code == 0, ran
    head, *lines = ran.out.splitlines()
    assert head.startswith("simulator ")
    assert head.endswith(" · 1 slot · coding, answers of at most 40 tokens")
    names = ["One agent", "Capacity", "At 1", "Why no more", "Try next", "Quality"]
    if lines[2].startswith("Doubt"):
        # Then levels that were missed prove nothing about the range.
        names = ["One agent", "Capacity", "Doubt", "At 1", "Why no more", "Try next", "Quality"]
    assert [line[:13].strip() for line in lines] == names
    text = dict(zip(names, (line[13:] for line in lines), strict=True))
    # Nothing is sure on a busy machine.
    sure = " (80 % sure)" if text["Quality"].startswith("ok") else ""
    # On a busy machine, a missed level counts only if it is missed by far.
    number = r"1 agent( or more| [(][^)]*[)]|, perhaps up to \d+,)? with " if "Doubt" in text else "1 agent with "
    assert re.match(number, text["Capacity"]), ran
    assert text["Capacity"].endswith(f" with a first token within 120 ms, for 50 % of requests{sure}")
    seen = r"(likely: )?at 2 agents (\(not sure yet\) )?the first token took "
    assert re.match(seen, text["Why no more"])
    assert "the only slot is taken" in text["Why no more"]
    assert text["Try next"].startswith(("slots=2: ", "measure again when the host is quiet"))
    shown = f"swarmtui sessions show {sandbox.session.name} --session-dir {sandbox.session.parent}"
    assert text["Quality"].endswith(f"saved: {shown}")
    assert "SLO: a first token within 120 ms, for 50 % of requests" in ran.err
    summary = store.summarise(store.load_session(sandbox.sessions, "last"))
    search = store.load_session(sandbox.sessions, "last").journal.search
    assert search is not None and search.alpha == 0.2 and summary.session.plan.budget_s == 20.0
    answer = summary.answer
    assert answer is not None and answer.headline.sentence == text["Capacity"]
    # The next search visits these levels, too; one of something else has no use for them.
    later = msgspec.structs.replace(summary.session, id="29991231-235959-ffff")
    border = compared_border(sandbox.sessions, later)
    assert border == tuple(filter(None, (answer.agents, answer.missed_c))) and 1 in border
    swept = msgspec.structs.replace(later, plan=msgspec.structs.replace(later.plan, goal="sweep"))
    elsewhere = msgspec.structs.replace(later, workload="chat")
    assert compared_border(sandbox.sessions, swept) == () == compared_border(sandbox.sessions, elsewhere)


def test_a_model_that_ends_every_answer_at_once_is_the_reason(sandbox: Sandbox) -> None:
    """An end of sequence is a token, and no first one: the search ends after the first level, and says why."""
    with scripted_server(respond_with_words(0, tokens=1)) as server:
        ran = sandbox.run("quick", server.url, "--budget", "20s", "--session-dir", str(sandbox.sessions))
    assert ran.code == 1, ran
    text = {line[:13].strip(): line[13:] for line in ran.out.splitlines()}
    assert text["Capacity"].endswith("for 90 % of requests is not known: no answer had text")
    assert re.fullmatch(r"the model ended all \d+ answers at once, without text", text["Why no more"])
    assert text["Try next"].startswith("find out why answers are empty")
    assert len(server.received) < 40


def test_json_has_the_answer_and_an_exit_code(sandbox: Sandbox) -> None:
    slow = ("sim:moe-tp1?output.cv=0", "--max-tokens", "8", "--budget", "20s", "--slo", "stream_p10=1000")
    ran = sandbox.run("quick", *slow, "--json", "--session-dir", str(sandbox.sessions))
    assert ran.code == 1, "not even one agent keeps it"
    answer = json.loads(ran.out)["answer"]
    # On a very busy machine a missed level proves nothing.
    high, code = answer["high"], "no_agent" if answer["high"] == 0 else "agents_not_known"
    assert (answer["agents"], answer["low"]) == (0, 0) and (high == 0 or answer["disturbed"])
    assert answer["headline"]["code"] == code and answer["slo"] == "stream_p10=1000"
    # On a busy machine the client may be the reason; reading the prompt takes about half of the time of eight tokens.
    assert answer["limit"]["code"] in ("not_known", "client", "prefill_share")
    assert "less than 1000 tok/s" in answer["limit"]["sentence"]
    assert answer["at_capacity"] is None and answer["one_agent"]["c"] == 1


@pytest.mark.parametrize(("terminal", "answers"), [(False, True), (True, False), (True, True)])
def test_without_a_server_it_offers_the_simulator(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, answers: bool
) -> None:
    asked: list[str] = []

    def no_server() -> str:
        raise NoServerFound("no server found on this host")

    def confirm(text: str) -> bool:
        asked.append(text)
        return answers

    monkeypatch.setattr(search, "only_endpoint", no_server)
    monkeypatch.setattr(click, "confirm", confirm)
    if terminal and answers:
        assert search._found_endpoint(ask=True) == "sim:moe-tp1"
    else:
        with pytest.raises(NoServerFound, match="try `swarmtui quick sim:moe-tp1`"):
            search._found_endpoint(ask=terminal)
    assert len(asked) == terminal


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare(1) for a network without servers")
def test_with_json_it_asks_nothing_where_no_server_is_found(sandbox: Sandbox) -> None:
    alone = ("unshare", "--user", "--map-root-user", "--net")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a network of its own is not permitted")
    ran = sandbox.run("quick", "--json", before=[*alone])
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "swarmtui: no server found on this host; try `swarmtui quick sim:moe-tp1`\n"
    for option in ("--json", "--events=jsonl"):
        terminal = TerminalProgram(sandbox, "quick", option, before=alone)
        assert terminal.wait() == 2
        assert "try `swarmtui quick sim:moe-tp1`" in terminal.text() and "[y/N]" not in terminal.text()


def test_after_the_app_the_answer_is_printed_in_a_few_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = min((Path(__file__).parents[1] / "tui" / "recorded").iterdir())
    directory = tmp_path / recorded.name
    shutil.copytree(recorded, directory)
    store.write_summary(directory)
    with pytest.raises(SystemExit) as left:
        report_and_exit(AppResult(ended=(Ended("done", "", str(directory)),)))
    assert left.value.code == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 7 and "|" not in out
    assert out.splitlines()[-1].startswith("Quality ")
    assert f"all figures: swarmtui sessions show {directory.name} --session-dir {tmp_path}" in out
    assert f"saved: {directory}" in err


def test_after_the_app_the_last_answer_is_printed_below_a_line_for_each_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small terminal has room for all of it: the answer to the question is not scrolled off."""
    ids = ("20261117-120100-aaaa", "20261117-120200-aaaa")
    for previous, id, slots in zip(("", *ids), ids, (2, 4), strict=False):
        fields = {"server_flags": f"--parallel {slots}", "previous": previous, "repeats": bool(previous)}
        store.write_summary(write_session(tmp_path / id, full_session(id, **fields)))
    with pytest.raises(SystemExit) as left:
        report_and_exit(AppResult(ended=tuple(Ended("done", "", str(tmp_path / id)) for id in ids)))
    assert left.value.code == 0
    out, err = capsys.readouterr()
    lines = [*out.splitlines(), *err.splitlines()]
    assert sum(-(-len(line) // 80) for line in lines) < 24
    earlier = lines[0]
    assert earlier.startswith("Earlier      ") and earlier.endswith(f" · --parallel 2 · {ids[0]}")
    assert out.count("Compared ") == 1 == out.count("Quality ")


def test_after_a_change_the_price_of_it_is_printed_once_and_as_on_the_compare_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = ("20261117-120100-aaaa", "20261117-120200-aaaa")
    for previous, id, slots in zip(("", *ids), ids, (2, 4), strict=False):
        fields = {"server_flags": f"--parallel {slots}", "previous": previous, "repeats": bool(previous)}
        server = DiscoveredServer(
            url="http://127.0.0.1:8000", engine="llama.cpp", slots=slots, context=16384 // slots,
            flags={"--parallel": str(slots)},
        )  # fmt: skip
        first, *entries = full_session(id, **fields)
        store.write_summary(write_session(tmp_path / id, [first, ServerEntry(endpoint=0, server=server), *entries]))
    with pytest.raises(SystemExit):
        report_and_exit(AppResult(ended=(Ended("done", "", str(tmp_path / ids[1])),)))
    text = " ".join(capsys.readouterr().out.split())
    pair = compare_pair(*(store.read_summary(tmp_path, id) for id in ids))
    price = {line.name: line.text for line in answer_lines(pair, in_app=True)}["Price"]
    assert price == "each agent has 8,192 → 4,096 tokens of context"
    assert f"(--parallel 2 → 4) Price {price}" in text and text.count("4,096") == 1
