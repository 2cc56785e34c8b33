"""The commands `export` and `probe`."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from swarmtui.cli import run, sessions
from swarmtui.processes.exits import DONE, STOPPED
from swarmtui.sessions.index import SortOrder
from tests.cli.programs import SHORT, SIM, Sandbox, open_sandbox, wait_until


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path_factory.mktemp("exported")) as sandbox:
        ran = sandbox.run_benchmark(SIM, *SHORT, "--levels", "1,2", "--quiet", "--seed", "5")
        assert ran.code == 0, ran
        yield sandbox


@pytest.mark.parametrize("form", ["md", "csv", "json", "toml", "html"])
def test_stdout_and_file_are_equal(measured: Sandbox, form: str) -> None:
    arguments = ("export", "last", "--format", form, "--session-dir", str(measured.sessions))
    path = measured.home / f"report.{form}"
    printed, saved = measured.run(*arguments), measured.run(*arguments, "-o", str(path))
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


def test_invalid_arguments_are_one_line(measured: Sandbox) -> None:
    common = ("--session-dir", str(measured.sessions))
    nowhere = str(measured.home / "no" / "where.md")
    assert "there is no directory" in measured.run(
        "export", "last", "--format", "md", "-o", nowhere, *common
    ).error_line(2)
    assert "no session of that name" in measured.run("export", "nope", "--format", "md", *common).error_line(2)
    assert measured.run("export", "last", "--format", "exe", *common).code == 2
    assert "--format: give one of" in measured.run("export", "last", "-o", "report", *common).error_line(2)
    assert "is for png and svg" in measured.run(
        "export", "last", "--format", "md", "--chart", "ttft", *common
    ).error_line(2)


def test_format_follows_the_file_suffix(measured: Sandbox) -> None:
    path = measured.home / "named.html"
    assert measured.run("export", "last", "-o", str(path), "--session-dir", str(measured.sessions)).code == 0
    assert path.read_text().startswith("<!doctype html>")


def test_probe_discards_warm_up_and_adds_to_the_history(sandbox: Sandbox) -> None:
    common = ("--session-dir", str(sandbox.sessions))
    for endpoint in (("--endpoint", SIM), (SIM,)):
        ran = sandbox.run("probe", *endpoint, *SHORT, "--quiet", *common)
        assert ran.code == 0, ran
        assert " tok/s" in ran.out and "TTFT" in ran.out
    assert "drift needs 44 probes of the same server, so far 2" in ran.out
    summary = sandbox.show_session()
    assert (summary["warmup_requests"], [level["c"] for level in summary["levels"]]) == (1, [1])
    assert summary["levels"][0]["n"] == 1
    shown = sandbox.run("probe", "--history", *common)
    assert shown.out.startswith(f"{SIM} ")
    assert shown.out.count("█") > 20
    (found,) = sandbox.json("probe", "--history", "--json", *common).values()
    assert len(found["probes"]) == 2 and found["median"] > 0


def test_probes_repeat_until_stopped(sandbox: Sandbox) -> None:
    program = sandbox.start(
        "probe", "--endpoint", SIM, *SHORT, "--every", "0.1s", "--quiet", "--session-dir", str(sandbox.sessions)
    )
    wait_until(lambda: program.stdout_so_far().count("tok/s") >= 2, "two probes")
    program.signal_group(2)
    assert program.wait().code == 4
    wait_until(lambda: not sandbox.processes("worker"), "no worker runs")


@pytest.fixture
def kept_handlers() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("kept_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_probes_end_although_a_finaliser_drops_the_interrupt(number: signal.Signals) -> None:
    class InterruptedAtItsEnd:
        def __del__(self) -> None:
            signal.raise_signal(number)

    dropped: list[object] = []
    probes = []

    def probe_once(interrupt: object) -> int:
        probes.append(len(dropped))
        InterruptedAtItsEnd()
        return DONE

    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: dropped.append(unraisable.exc_type)
    try:
        assert run._probe_repeatedly(probe_once, 3600.0) == STOPPED
    finally:
        sys.unraisablehook = before
    assert (probes, dropped) == ([0], [KeyboardInterrupt])


def test_install_hint_prints_timer_and_cron_line_only(sandbox: Sandbox) -> None:
    ran = sandbox.run("probe", "--endpoint", "http://h:1/v1?a=%20b c", "--every", "30m", "--install-hint")
    assert ran.code == 0, ran
    assert "OnUnitActiveSec=30min" in ran.out
    assert "*/30 * * * * " in ran.out
    assert "--endpoint 'http://h:1/v1?a=%%20b c'" in ran.out
    assert "--endpoint 'http://h:1/v1?a=\\%20b c'" in ran.out
    assert not Path(sandbox.sessions).exists()


def test_empty_history_tells_how_to_start(sandbox: Sandbox) -> None:
    assert "no probes yet" in sandbox.run("probe", "--history", "--session-dir", str(sandbox.sessions)).out


def test_probe_of_unreachable_server_exits_with_3(sandbox: Sandbox) -> None:
    assert sandbox.run("probe", "--endpoint", "http://127.0.0.1:9", "--session-dir", str(sandbox.sessions)).code == 3


def test_choices_match_the_library() -> None:
    assert get_args(SortOrder) == sessions.BY
