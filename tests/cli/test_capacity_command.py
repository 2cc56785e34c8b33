"""`swarmtui capacity` on the simulator: the answer, its exit codes, and that it can be derived from the journal."""

from __future__ import annotations

import json

from swarmtui.model.trace import TraceRequest, TraceSession
from swarmtui.prompts.traces.weka import weka_json
from swarmtui.sessions import store
from tests.cli.programs import Sandbox


def capacity(*arguments: str) -> tuple[str, ...]:
    # One slot: with a second agent, each request waits for a whole answer of 240 ms.
    return ("capacity", "--endpoint", "sim:moe-tp1?slots=1&output.cv=0", "--workload", "chat", *arguments)


def test_answer_is_the_slots_and_is_derived_from_the_journal(sandbox: Sandbox) -> None:
    words = ("--max-tokens", "40", "--slo", "ttft_p50=120ms", "--price-per-hour", "3.5")
    ran = sandbox.run(*capacity(*words, "--json", "--session-dir", str(sandbox.sessions)))
    assert ran.code == 0, ran
    summary = json.loads(ran.out)
    found = summary["capacity"]
    assert (found["low"], found["agents"], found["high"], found["next_c"]) == (1, 1, 1, 2), found
    answer = summary["answer"]
    # On a busy machine nothing is sure, and what is missed proves nothing, unless by far.
    disturbed = answer["disturbed"]
    assert (answer["agents"], answer["low"]) == (1, 1) and (answer["high"] == 1 or disturbed)
    assert answer["slo"] == "ttft_p50=120ms"
    headline = answer["headline"]["sentence"]
    found_words = "1 agent with a first token within 120 ms, for 50 % of requests"
    high = answer["high"]
    end = "" if high == 1 else " or more" if high is None else f", perhaps up to {high},"
    assert headline == found_words.replace("1 agent", f"1 agent{end}", 1) + ("" if answer["doubts"] else " (99 % sure)")
    assert answer["limit"]["code"] == ("not_known" if disturbed else "slots")
    not_known = "likely: " if disturbed else ""
    assert answer["limit"]["sentence"].startswith(f"{not_known}at 2 agents the first token")
    assert answer["one_agent"] == answer["at_capacity"] and answer["one_agent"]["c"] == 1
    assert "slots=2" in [step["command"] for step in answer["next"]]
    assert found["agents_per_gpu"] == 1 and found["price_per_million"] > 0
    # The preset has no limit, so the simulator reports room for one context in each slot.
    assert found["kv"]["pool_tokens"] == 16384 and found["kv"]["predicted"] > 20
    named = {event["name"]: event["detail"] for event in summary["events"]}
    assert found["slo"] == "TTFT p50 ≤ 120 ms" and named["capacity"] == found_words
    verdicts = {level["c"]: level["state"] for level in summary["search"]["levels"]}
    assert verdicts[1] == "kept" and verdicts[2] == ("unsure" if disturbed else "missed")
    words_of = {True: "kept", False: "missed", None: "unsure"}
    assert {level["c"]: words_of[level["kept"]] for level in summary["goodput"]} == verdicts
    (sandbox.session / "detail.json").unlink()
    (sandbox.session / "summary.toml").unlink()
    shown = sandbox.run("sessions", "show", "last", "--session-dir", str(sandbox.sessions))
    assert headline in " ".join(shown.out.split())
    counts = {level["c"]: f"{level['good']} of {level['n']}" for level in summary["search"]["levels"]}
    assert f"✓ {counts[1]}" in shown.out and f"{'?' if disturbed else '✖'} {counts[2]}" in shown.out
    assert sandbox.show_session()["capacity"] == found


def test_exit_codes_and_a_trace(sandbox: Sandbox) -> None:
    traces = sandbox.home / "traces"
    traces.mkdir()
    for number in range(3):
        requests = tuple(TraceRequest(input_tokens=tokens, output_tokens=4, think_s=0.0) for tokens in (200, 300))
        (traces / f"{number}.json").write_bytes(weka_json(TraceSession(id=f"s{number}", requests=requests)))
    cases: dict[tuple[str, ...], tuple[int, str]] = {
        ("--slo", "ttft_p95=1us", "--workload", str(traces)): (
            1,
            "not even one agent with a first token within 0.001 ms, for 95 % of requests",
        ),
        ("--slo", "ttft_p95=2s,speed=3"): (2, "--slo: unknown figure 'speed'; use one of ttft, ttfo, tpot, e2e"),
        ("--slo", "stream_p95=20"): (2, "--slo: stream_p95 is not the slow end of stream; use p1 to p50"),
        ("--slo", "ttft=1s", "--levels", "1,2"): (2, "--levels: no such option"),
        ("--slo", "ttft=1s", "--workload", "orchestrator-dag"): (2, "--workload"),
    }
    ran = sandbox.run_each(*(capacity(*words, "--session-dir", str(sandbox.sessions)) for words in cases))
    for one, (code, message) in zip(ran, cases.values(), strict=True):
        assert one.code == code and "Traceback" not in one.err, one
        said = " ".join((one.out + one.err).split())
        assert message in said or "so missed levels are not sure" in said

    loaded = store.load_session(sandbox.sessions, "last")
    search, summary = loaded.journal.search, store.summarise(loaded)
    assert search is not None and (search.slo, search.alpha) == ("ttft_p95=1us", 0.01)
    named = {event.name: event.detail for event in summary.events}
    assert summary.answer is not None
    assert summary.answer.disturbed or summary.answer.headline.sentence.startswith(named["capacity"])
