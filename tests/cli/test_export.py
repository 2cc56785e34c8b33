"""`swarmtui export` and `swarmtui probe` as commands."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from swarmtui.cli import sessions
from swarmtui.sessions import export
from swarmtui.sessions.finding import By
from tests.cli.programs import SHORT, SIM, Place, place_in, until


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_in(tmp_path_factory.mktemp("exported")) as place:
        ran = place.measure(SIM, *SHORT, "--levels", "1,2", "--quiet", "--seed", "5")
        assert ran.code == 0, ran
        yield place


@pytest.mark.parametrize("form", ["md", "csv", "json", "toml", "html"])
def test_stdout_and_a_file_hold_the_same(measured: Place, form: str) -> None:
    words = ("export", "last", "--format", form, "--session-dir", str(measured.sessions))
    path = measured.home / f"report.{form}"
    printed, saved = measured.run(*words), measured.run(*words, "-o", str(path))
    assert (printed.code, saved.code, saved.out) == (0, 0, "")
    assert path.read_text() == printed.out
    match form:
        case "csv":
            assert [row["c"] for row in csv.DictReader(io.StringIO(printed.out)) if not row["run"]] == ["1", "2"]
        case "json":
            assert json.loads(printed.out) == measured.detail()
        case "toml":
            assert tomllib.loads(printed.out)["levels"][1]["c"] == 2
        case "html":
            assert printed.out.startswith("<!doctype html>")
        case _:
            assert printed.out.startswith("# ")


def test_wrong_words_are_one_line(measured: Place) -> None:
    kept = ("--session-dir", str(measured.sessions))
    nowhere = str(measured.home / "no" / "where.md")
    assert "cannot be written" in measured.run("export", "last", "--format", "md", "-o", nowhere, *kept).refused(2)
    assert "no session of that name" in measured.run("export", "nope", "--format", "md", *kept).refused(2)
    assert measured.run("export", "last", "--format", "exe", *kept).code == 2
    assert "--format: say which" in measured.run("export", "last", "-o", "report", *kept).refused(2)
    assert "is for png and svg" in measured.run("export", "last", "--format", "md", "--chart", "ttft", *kept).refused(2)


def test_the_name_of_the_file_says_the_format(measured: Place) -> None:
    path = measured.home / "named.html"
    assert measured.run("export", "last", "-o", str(path), "--session-dir", str(measured.sessions)).code == 0
    assert path.read_text().startswith("<!doctype html>")


def test_a_probe_discards_its_warm_up_and_builds_a_history(place: Place) -> None:
    kept = ("--session-dir", str(place.sessions))
    for _ in range(2):
        ran = place.run("probe", "--endpoint", SIM, *SHORT, "--quiet", *kept)
        assert ran.code == 0, ran
        assert " tok/s, " in ran.out and "TTFT" in ran.out
    assert "5 earlier probes are needed to judge it, so far 1" in ran.out
    summary = place.shown()
    assert (summary["warmup_requests"], [level["c"] for level in summary["levels"]]) == (1, [1])
    assert summary["levels"][0]["n"] == 1
    shown = place.run("probe", "--history", *kept)
    assert shown.out.startswith(f"{SIM} ")
    assert shown.out.count("█") > 20
    (found,) = place.json("probe", "--history", "--json", *kept).values()
    assert len(found["probes"]) == 2 and found["median"] > 0


def test_probes_by_the_clock_go_on_until_they_are_stopped(place: Place) -> None:
    program = place.start(
        "probe", "--endpoint", SIM, *SHORT, "--every", "0.1s", "--quiet", "--session-dir", str(place.sessions)
    )
    until(lambda: program.printed().count("tok/s") >= 2, "two probes")
    program.signal_group(2)
    assert program.wait().code == 4
    until(lambda: not place.processes("worker"), "no worker is left")


def test_the_hint_names_a_timer_and_a_cron_line_and_measures_nothing(place: Place) -> None:
    ran = place.run("probe", "--endpoint", "http://h:1/v1?a=%20b c", "--every", "30m", "--install-hint")
    assert ran.code == 0, ran
    assert "OnUnitActiveSec=30min" in ran.out
    assert "*/30 * * * * " in ran.out
    assert "--endpoint 'http://h:1/v1?a=%%20b c'" in ran.out
    assert "--endpoint 'http://h:1/v1?a=\\%20b c'" in ran.out
    assert not Path(place.sessions).exists()


def test_a_history_without_probes_says_how_to_begin(place: Place) -> None:
    assert "no probe yet" in place.run("probe", "--history", "--session-dir", str(place.sessions)).out


def test_a_probe_of_a_server_that_is_away_is_exit_code_3(place: Place) -> None:
    assert place.run("probe", "--endpoint", "http://127.0.0.1:9", "--session-dir", str(place.sessions)).code == 3


def test_the_words_that_the_command_line_offers_are_those_that_there_are() -> None:
    assert get_args(By) == sessions.BY
    assert export.FORMATS == sessions.FORMATS
