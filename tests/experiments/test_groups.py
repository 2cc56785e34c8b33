"""Experiments are one line in the list of sessions, with their sessions below it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from swarmtui.experiments.ab import changed_sides, side_name
from swarmtui.experiments.groups import (
    Entry,
    SessionGroup,
    describe_groups,
    group_id,
    group_sessions,
    list_rows,
    session_flags,
    tune_name,
)
from swarmtui.experiments.store import experiment_directory, write_experiment
from swarmtui.model.session_tags import Series
from swarmtui.model.tuning import AbTest, Experiment, ExperimentStatus, Side, Start, TuneFile
from swarmtui.report.session_list import session_list
from swarmtui.report.text import paint
from swarmtui.sessions.index import SessionRow

STATUS = ExperimentStatus(pid=1, born=0.0, begun=time.time(), since=0.0, ended="done")


def row(number: int, series: Series | None = None, **fields: object) -> SessionRow:
    defaults: dict[str, object] = {"state": "done", "model": "m", "workload": "w", "requests": 5, "series": series}
    return SessionRow(id=f"20261116-00000{number}-aaaa", **defaults | fields)  # type: ignore[arg-type]


def ab_sessions(root: Path, runs: int = 4) -> list[SessionRow]:
    test = AbTest(name="ab-1", a="serve --parallel 2 --port {port}", b="serve --parallel 4 --port {port}")
    rates: dict[Side, float] = {"A": 100.0, "B": 125.0}
    starts = tuple(
        Start(side=side, out_tps=rates[side] + k / 10, c=4, session=f"{side}{k}") for k in range(runs) for side in rates
    )
    write_experiment(
        experiment_directory(root, "ab-1"), "ab", Experiment(definition=test, starts=starts, status=STATUS)
    )
    return [row(k, Series(kind="ab", name="ab-1", side="AB"[k % 2])) for k in range(2)]


def text_of(entries: list[Entry], opened: tuple[str, ...] | None = ()) -> str:
    return paint(session_list(list_rows(entries, opened), {}))


def test_an_ab_test_is_one_line_named_by_what_changed_with_its_verdict(tmp_path: Path) -> None:
    rows = [row(9), *ab_sessions(tmp_path), row(8)]
    entries = group_sessions(rows, describe_groups(tmp_path, rows))
    assert [entry.id for entry in entries] == [rows[0].id, "ab:ab-1", rows[3].id]
    group = entries[1]
    assert isinstance(group, SessionGroup) and group.name == "--parallel 2 → 4"
    assert group.result == "faster +25 %" and len(group.sessions) == 2
    closed, opened = text_of(entries), text_of(entries, None)
    assert "▸ A/B test, 2 sessions" in closed and "--parallel 2 → 4" in closed and rows[1].id not in closed
    assert "--all lists them" in closed
    assert all(found.id in opened for found in rows)


def test_two_settings_of_a_simulator_are_named_by_what_differs() -> None:
    assert changed_sides(AbTest(name="x", a="sim:moe-tp1?slots=2&seed=1", b="sim:moe-tp1?slots=4&seed=1")) == (
        "--slots 2 → 4"
    )
    assert changed_sides(AbTest(name="x", a="http://a:1", b="http://a:2")) == "http://a:1 → http://a:2"


def test_each_side_of_an_ab_test_is_named_by_what_the_other_has_not() -> None:
    commands = AbTest(name="x", a="llama-server -m m --parallel 2", b="llama-server -m m --parallel 4 --flash-attn")
    assert side_name(commands, "A") == "A: --parallel 2, no --flash-attn"
    assert side_name(commands, "B") == "B: --parallel 4, --flash-attn"
    simulators = AbTest(name="x", a="sim:moe-tp1", b="sim:moe-tp1?prefill_tps=2000")
    assert [side_name(simulators, side) for side in ("A", "B")] == ["A: no --prefill_tps", "B: --prefill_tps 2000"]
    assert side_name(AbTest(name="x", a="http://a:1", b="http://a:2"), "B") == "B: http://a:1 → http://a:2"


def test_columns_that_do_not_differ_are_named_once() -> None:
    shown = text_of([row(1), row(2)])
    assert "| m " not in shown and "all of them: m · w" in shown
    assert "| m " in text_of([row(1), row(2, model="n")])


def test_an_ab_test_with_too_few_runs_says_after_how_many(tmp_path: Path) -> None:
    rows = ab_sessions(tmp_path, runs=2)
    (group,) = group_sessions(rows, describe_groups(tmp_path, rows))
    assert isinstance(group, SessionGroup) and group.result == "after 4 runs"


def test_a_tune_is_one_line_with_its_best_configuration(tmp_path: Path) -> None:
    tune = TuneFile(name="slots", command="serve {port}", grid={"--slots": (1, 4)})
    starts = tuple(
        Start(flags={"--slots": slots}, out_tps=100.0 * slots + k, c=4, round=k) for slots in (1, 4) for k in range(3)
    )
    directory = experiment_directory(tmp_path, "slots-1234")
    write_experiment(directory, "tune", Experiment(definition=tune, starts=starts, status=STATUS))
    rows = [row(1, Series(kind="tune", name="slots-1234")), row(2, Series(kind="tune", name="gone-5678"))]
    known, gone = group_sessions(rows, describe_groups(tmp_path, rows))
    assert isinstance(known, SessionGroup) and isinstance(gone, SessionGroup)
    assert (known.name, known.result) == ("slots", "401 tok/s at C=4 with --slots 4")
    assert (gone.name, gone.result) == ("gone-5678", "")


def test_the_probes_of_one_target_are_one_line(tmp_path: Path) -> None:
    probes = Series(kind="probe", name="http://box:8000")
    rows = [
        row(3, probes, best_out_tps=77.0),
        row(2, probes, best_out_tps=76.0),
        row(1, probes, model="other"),
        row(0, Series(kind="probe", name="http://box:8001")),
    ]
    entries = group_sessions(rows, describe_groups(tmp_path, rows))
    assert [isinstance(entry, SessionGroup) for entry in entries] == [True, False, False]
    assert isinstance(entries[0], SessionGroup) and entries[0].result == "77.0 tok/s"
    assert len({group_id(found) for found in rows}) == 3


def test_a_session_is_named_by_its_flags_not_by_how_they_changed() -> None:
    """A repeat with the same flags has the same name."""
    rows = [
        row(4, previous="20261116-000003-aaaa", repeats=True, flags={"parallel": "4", "port": "2"}),
        row(3, previous="20261116-000002-aaaa", repeats=True, flags={"parallel": "4", "port": "2"}),
        row(2, flags={"parallel": "2", "port": "1"}),
        row(1, flags={"parallel": "2", "port": "1"}, model="other"),
    ]
    assert list(session_flags(rows).values()) == ["--parallel 4", "--parallel 4", "--parallel 2"]


def test_flags_of_another_server_did_not_change() -> None:
    ports = ("http://a:1 m", "http://b:1 m")
    rows = [row(at, endpoint=url, flags={"parallel": str(at + 2)}) for at, url in enumerate(ports)]
    assert session_flags(rows) == {}


def test_a_tune_is_named_by_what_it_varies() -> None:
    tune = TuneFile(command="serve {port}", grid={"--parallel": (2, 4, 8), "--ctx": (8192,)})
    assert tune_name(tune) == "--parallel 2, 4, 8"
    assert tune_name(msgspec.structs.replace(tune, name="mine")) == "mine"
