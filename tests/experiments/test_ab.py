"""What an A/B test measures next, and what its runs show so far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from swarmtui.experiments.ab import AbRunner, ab_result, log_entry
from swarmtui.experiments.store import write_experiment
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.tuning import AbTest, CacheUse, Experiment, Side, Start
from swarmtui.report.text import paint
from swarmtui.report.tuning import ab_blocks
from tests.analysis.level_builders import level, summary
from tests.experiments.tune_builders import tune_status

TEST = AbTest(name="ab-1", a="http://127.0.0.1:1", b="http://127.0.0.1:2", detect=0.02, max_runs=48)


def start(side: Side, tps: float, **fields: Any) -> Start:
    return Start(side=side, session=f"s{tps:g}", out_tps=tps, ttft_s=1.0 / tps, errors=0, **fields)


def runs(a: list[float], b: list[float], **fields: Any) -> tuple[Start, ...]:
    pairs = zip(a, b, strict=True)
    return tuple(found for x, y in pairs for found in (start("A", x, **fields), start("B", y, **fields)))


def experiment(starts: tuple[Start, ...], test: AbTest = TEST, **fields: Any) -> Experiment[AbTest]:
    return Experiment(definition=test, starts=starts, status=tune_status(**fields))


def runner(directory: Path, test: AbTest = TEST, report: Callable[[str], None] = print) -> AbRunner:
    request = RunRequest(endpoints=(), workload="coding", plan=Plan(seed=7), session_root=str(directory))
    return AbRunner(test, request, directory, report)


def test_runs_are_evaluated_at_the_last_checkpoint() -> None:
    early = runs([100.0, 101.0, 100.0, 101.0], [120.0, 121.0, 120.0, 121.0])
    found = ab_result(experiment((*early, start("A", 5.0))))
    assert found.decision is not None and (found.decision.n, found.decision.word) == (4, "faster")
    assert found.values("A") == [100.0, 101.0, 100.0, 101.0, 5.0]
    assert found.sessions("B") == "s120+s121+s120+s121"
    assert ab_result(experiment(early[:-1])).decision is None


def test_nothing_is_decided_if_a_run_that_counts_is_in_doubt() -> None:
    early = runs([100.0, 101.0, 100.0, 101.0], [120.0, 121.0, 120.0, 121.0])
    doubt = "token counts contradict each other"
    found = ab_result(experiment((msgspec.structs.replace(early[0], doubts=(doubt,)), *early[1:]))).decision
    assert found is not None and found.word == "not sure yet" and found.done
    assert found.sentence == f"not sure yet: +20 % (+18 % to +21 %; 4 v 4 runs); {doubt}"
    later = msgspec.structs.replace(start("A", 5.0), doubts=(doubt,))
    quiet = ab_result(experiment((*early, later))).decision
    assert quiet is not None and quiet.sentence.startswith("faster: ")


def test_a_busy_host_is_noted_beside_the_verdict() -> None:
    """It slows runs of both sides in turn, so that the interval includes it."""
    early = runs([100.0, 101.0, 100.0, 101.0], [120.0, 121.0, 120.0, 121.0])
    busy = msgspec.structs.replace(early[0], disturbances=("the host was busy",))
    found = ab_result(experiment((busy, *early[1:])))
    assert found.decision is not None and found.decision.word == "faster" and "95 % sure" in found.decision.sentence
    shown = paint(ab_blocks(found))
    assert "note: the host was busy in some runs; A and B took turns" in shown and "not sure" not in shown


def test_shorter_first_token_is_faster() -> None:
    test = msgspec.structs.replace(TEST, figure="ttft_s")
    found = ab_result(experiment(runs([100.0, 101.0, 100.0, 101.0], [120.0, 121.0, 120.0, 121.0]), test))
    assert found.decision is not None and found.decision.word == "faster" and (found.decision.change or 0.0) < 0
    change = log_entry(found)
    assert change is not None and change.effect.startswith("TTFT s: faster: −")
    assert change.what == "http://127.0.0.1:1 → http://127.0.0.1:2"


def test_header_is_judged_by_the_runs_of_the_checkpoint() -> None:
    test = msgspec.structs.replace(TEST, agent_header="date")
    use = CacheUse(prompt_tokens=100.0, cached_tokens=90.0, source="usage")
    starts = runs([100.0] * 4, [101.0, 100.0, 101.0, 100.0], cache=use)
    found = ab_result(experiment((*starts, start("A", 99.0)), test))
    assert found.header is not None and found.header.code == "survives"


def test_failed_start_is_no_run_and_secrets_are_left_out() -> None:
    test = msgspec.structs.replace(TEST, a="serve --api-key sk-1 --port {port}")
    stored = experiment((start("A", 1.0), Start(side="B", state="broken", reason="exited")), test, ended="stopped")
    found = ab_result(msgspec.structs.replace(stored, problem="B: exited"))
    assert len(found.runs) == 1 and found.problem == "B: exited" and found.stopped
    assert found.test.a == "serve --api-key … --port {port}"


def test_each_run_has_its_own_seed_and_only_b_has_the_header(tmp_path: Path) -> None:
    test = msgspec.structs.replace(TEST, b=TEST.a, agent_header="date")
    order: list[Side] = []
    for index in range(4):
        write_experiment(tmp_path, "ab", experiment(tuple(start(side, 100.0) for side in order), test))
        trial = runner(tmp_path, test).next_trial()
        assert trial is not None and trial.launch is None and trial.start.side is not None
        side = trial.start.side
        assert (trial.title, trial.log) == (f"run {index + 1}: {side}", f"{index + 1}-{side}.log")
        plan = trial.request.plan
        assert (plan.seed, plan.agent_header) == (7 + index, "date" if side == "B" else None)
        assert trial.request.endpoints == (TEST.a,)
        order.append(side)
    assert "".join(order) in ("ABBA", "BAAB")


def test_interrupted_test_continues_where_it_was(tmp_path: Path) -> None:
    stored = runs([100.0, 120.0, 90.0, 110.0], [101.0, 95.0, 115.0, 105.0])
    write_experiment(tmp_path, "ab", experiment(stored, ended="stopped"))
    lines: list[str] = []
    trial = runner(tmp_path, report=lines.append).next_trial()
    assert trial is not None and trial.title.startswith("run 9: ")
    assert len(lines) == 1 and lines[0].startswith("not sure yet: ")


def test_test_ends_with_a_verdict_and_a_comparison_with_itself_at_the_first_checkpoint(tmp_path: Path) -> None:
    write_experiment(tmp_path, "ab", experiment(runs([100.0, 101.0, 100.0, 101.0], [120.0, 121.0, 120.0, 121.0])))
    assert runner(tmp_path).next_trial() is None
    write_experiment(tmp_path, "ab", experiment(runs([100.0, 120.0, 90.0, 110.0], [101.0, 95.0, 115.0, 105.0])))
    assert runner(tmp_path).next_trial() is not None
    assert runner(tmp_path, msgspec.structs.replace(TEST, aa=True)).next_trial() is None


def test_run_without_the_figure_ends_the_test(tmp_path: Path) -> None:
    found = runner(tmp_path)
    found.finished(Start(side="B", state="broken", reason="exited with code 1", log=("out of memory",)), None)
    assert found.experiment.problem == "B: exited with code 1\n    out of memory"
    assert found.next_trial() is None


def test_sides_that_cannot_be_compared_end_the_test_after_two_runs(tmp_path: Path) -> None:
    levels = [level(4, tps=100.0)]
    found = runner(tmp_path)
    found.finished(start("B", 100.0), summary(levels, workload="new", workload_digest="ffff"))
    assert found.next_trial() is not None
    found.finished(start("A", 101.0), summary(levels, workload="old", workload_digest="0000"))
    assert found.experiment.problem == "A and B cannot be compared: different workloads: old (0000) and new (ffff)"
    assert len(ab_result(found.experiment).runs) == 2 and found.next_trial() is None
