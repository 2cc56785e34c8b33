"""All mistakes of a command line are reported together, one line each, before anything is sent or started."""

from __future__ import annotations

import pytest

from tests.cli.programs import SHORT, SIM, Sandbox


def mistakes_of(sandbox: Sandbox, *command: str) -> list[str]:
    """Return the options and arguments that the errors of an invalid command line name, in their order."""
    done = sandbox.run(*command)
    assert done.code == 2 and not done.out, done
    assert not sandbox.sessions.exists() or not list(sandbox.sessions.iterdir())
    assert all(line.startswith("swarmtui: ") for line in done.err.splitlines()), done
    return [line.split(": ")[1] for line in done.err.splitlines()]


def options_of(wrong: dict[str, str]) -> list[str]:
    return [part for option in wrong.items() for part in option]


@pytest.mark.parametrize("command", ["run", "capacity"])
def test_all_mistakes_of_a_command_line_are_reported_together(sandbox: Sandbox, command: str) -> None:
    wrong = {
        "--endpoint": "sim:nope", "--workload": "nothing", "--requests": "x", "--slo": "foo=1",
        "--max-tokens": "0", "--temperature": "warm", "--tag": "untagged",
    }  # fmt: skip
    if command == "run":
        wrong |= {"--levels": "0", "--fail-if": "nothing>1", "--detect": "900%"}
    assert sorted(mistakes_of(sandbox, command, *options_of(wrong))) == sorted(wrong)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (
            ("probe", "--endpoint", "sim:nope"),
            {"--workload": "nothing", "--every": "soon", "--max-tokens": "x", "--runs": "0"},
        ),
        (
            ("ab", "--aa", "--a", "sim:nope"),
            {
                "--workload": "nothing",
                "--detect": "900%",
                "--ready-within": "soon",
                "--level": "0",
                "--figure": "speed",
            },
        ),
        (("ab", "--a", "http://host:x"), {"--b": "sim:no", "--pace": "1"}),
        (("ab", "--a", "vllm serve M"), {"--b": "vllm serve N", "--requests": "-1"}),
        (("tune", "--auto", "vllm serve M"), {"--levels": "x", "--requests": "-1", "--slo": "nope"}),
        (
            ("tune", "--auto", "vllm serve M --port {port} 'x"),
            {
                "--budget": "soon",
                "--ready-within": "late",
                "--engine": "none",
                "--knob": "x",
                "--power": "much",
                "--recipe": "missing",
                "--max-tokens": "0",
                "--workload": "nothing",
                "--bogus": "1",
            },
        ),
        (("limits", "--gpu", "Voodoo"), {"--levels": "x", "--context": "0", "--bogus": "1"}),
        (("sim", "--port", "x"), {"--speed": "0", "--bogus": "1"}),
        (("sessions", "-n", "0"), {"--by": "nothing", "--bogus": "1"}),
        (("doctor", "--endpoint", "sim:nope"), {"--hosts": "nowhere,", "--ca-file": "missing", "--streams": "0"}),
        (("doctor", "--hosts", "local:x"), {"--ca-file": "/dev/null", "--endpoint": "http://host:x"}),
        (("tune", "--auto", "mine --port {port}"), {"--budget": "soon", "--bogus": "1"}),
    ],
)
def test_each_command_reports_all_mistakes_together(
    sandbox: Sandbox, command: tuple[str, ...], wrong: dict[str, str]
) -> None:
    assert sorted(mistakes_of(sandbox, *command, *options_of(wrong))) == sorted([command[-2], *wrong])


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("ab",), ["--a", "--b"]),
        (("tune", "--levels", "x", "--requests", "-1", "--slo", "nope"), ["FILE", "--levels", "--requests", "--slo"]),
        (("tune", "missing.toml", "--auto", "x", "--knob", "-x=1"), ["--auto", "--knob", "missing.toml"]),
        (("export", "one", "two", "--format", "nope", "--bogus"), ["--bogus", "--format", "one", "two"]),
        (("export", "--format", "nope"), ["SESSION", "--format"]),
        (("compare", "one", "two", "--detect", "0", "--bogus"), ["--bogus", "--detect", "one", "two"]),
        (("limits", "./missing", "--levels", "0"), ["--levels", "missing"]),
        (("limits", "missing", "--levels", "0"), ["--endpoint", "--levels"]),
        (("tune", "missing.toml", "--events", "jsonl", "--json"), ["--json", "missing.toml"]),
        (("run", "a", "b", "--fail-if", "x", "--fail-if", "y"), ["--endpoint", "--endpoint", "--fail-if", "--fail-if"]),
        (("run", SIM, "--metrics-url", "x", "--metrics-url", "y"), ["--metrics-url", "--metrics-url"]),
        (("share", "one", "--level", "2", "-o", "a", "-o", "b", "--bogus"), ["--bogus", "--level", "a", "b", "one"]),
        (("share", "one", "--to", "nowhere", "--level", "x", "--bogus"), ["--bogus", "--level", "--to", "one"]),
        (("share", "one", "--to", "localmaxxing", "-o", "a", "-o", "b"), ["-o", "one"]),
        (("--bogus", "--slow=1", "sesions"), ["--bogus", "--slow", "sesions"]),
        (("--bogus", "run", SIM, "--levels", "0"), ["--bogus", "--levels"]),
        (("sessions", "--by", "nothing", "nowhere"), ["--by", "nowhere"]),
        (("sessions", "--most", "0", "show", "--bogus"), ["--bogus", "-n", "SESSION"]),
        (("sessions", "--other", "show", "one", "two", "--bogus"), ["--bogus", "--other", "one", "two"]),
        (("sessions", "import", "one", "two", "--bogus"), ["--bogus", "one", "two"]),
        (("sessions", "rm", "one", "two", "--bogus"), ["--bogus", "one", "two"]),
        (("sessions", "save-to", "one", __file__, "--bogus"), ["--bogus", "DIRECTORY", "one"]),
        (("sessions", "advice", "one", "--bogus"), ["--bogus", "one"]),
        (("sessions", "log", "9", "--kept", "--bogus"), ["--bogus", "9"]),
        (("sessions", "log", "--kept", "--bogus"), ["--bogus", "sessions log"]),
        (("sessions", "log", "x", "--kept", "--bogus"), ["--bogus", "NUMBER"]),
        (("attach", "one", "--bogus"), ["--bogus", "one"]),
        (("replay", "one", "--bogus"), ["--bogus", "one"]),
        (
            ("schema", "nothing", "more"),
            ["more", "no schema named 'nothing'; known are journal, detail, summary, workload, config, events, shared"],
        ),
        (("sim", "nothing", "--list", "--bogus"), ["--bogus", "sim:nothing"]),
        (("workloads", "--bogus", "show", "0"), ["--bogus", "no workload or file named '0'; built-in"]),
        (("workloads", "check", "0", "--bogus"), ["--bogus", "no workload or file named '0'; built-in"]),
        (("traces", "--other", "show", "one", "two", "--bogus"), ["--bogus", "--other", "one", "two"]),
        (("traces", "record", "--bogus"), ["--bogus", "--from"]),
        (("traces", "record", "one", "--from", "codex", "--output", "/dev"), ["--output", "one"]),
    ],
)
def test_arguments_are_named_beside_options(sandbox: Sandbox, command: tuple[str, ...], named: list[str]) -> None:
    assert sorted(mistakes_of(sandbox, *command)) == sorted(named)


def test_options_of_a_group_that_are_wrong_do_not_change_those_that_are_right(sandbox: Sandbox) -> None:
    ran = sandbox.run("sessions", "--session-dir", "/elsewhere", "--by", "nothing", "show", "one")
    assert ran.code == 2 and "one: no session of that name in /elsewhere" in ran.err, ran


def test_nothing_is_removed_if_one_of_several_sessions_is_not_there(sandbox: Sandbox) -> None:
    assert sandbox.run_benchmark(SIM, "--levels", "1", *SHORT).code == 0
    ran = sandbox.run("sessions", "--session-dir", str(sandbox.sessions), "rm", sandbox.session.name, "other")
    assert ran.error_line(2).startswith("swarmtui: other: ") and sandbox.session.exists()


def test_two_mistakes_about_an_export_are_reported_together(sandbox: Sandbox) -> None:
    found = mistakes_of(sandbox, "export", "one", "two", "--format", "json", "--chart", "gpu")
    assert sorted(found) == ["--chart", "--format", "one", "two"]


@pytest.mark.parametrize(
    "words",
    [
        ("export", "nothing", "-o", "{}"), ("share", "nothing", "-o", "{}"),
        ("tune", "--auto", "serve", "--html", "{}", "--save-recipe", "{}"),
    ],
)  # fmt: skip
def test_a_file_whose_directory_does_not_exist_is_a_mistake_before_anything_runs(
    sandbox: Sandbox, words: tuple[str, ...]
) -> None:
    ran = sandbox.run(*(word.format("no/such/out.html") for word in words))
    assert ran.code == 2 and "there is no directory no/such; create it first" in ran.err, ran


def test_missing_choice_is_told_with_what_can_be_chosen(sandbox: Sandbox) -> None:
    assert "SHELL: is missing; one of bash, zsh, fish" in sandbox.run("completion").error_line(2)


@pytest.mark.parametrize("command", ["run", "quick", "capacity"])
def test_unknown_options_do_not_hide_other_mistakes(sandbox: Sandbox, command: str) -> None:
    found = mistakes_of(
        sandbox, command, "--endpoint", "nope://", "--workload", "missing.toml", "--pace", "abc", "--quiet=no", "-x",
        "--metrics-port", "zz", "--json", "--events", "jsonl", "--max-tokens",
    )  # fmt: skip
    assert sorted(found) == [
        "--endpoint", "--json", "--max-tokens", "--metrics-port", "--pace", "--quiet", "--workload", "-x",
    ]  # fmt: skip


def test_value_of_an_unknown_option_is_not_taken_for_an_endpoint(sandbox: Sandbox) -> None:
    assert mistakes_of(sandbox, "capacity", "--pace", "120", "--slo", "foo") == ["--pace", "--slo"]


def test_mistakes_of_a_plan_do_not_hide_each_other(sandbox: Sandbox) -> None:
    found = mistakes_of(
        sandbox, "run", "--endpoint", SIM, "--levels", "0", "--requests", "x", "--timeout", "soon", "--max-tokens", "0"
    )
    assert sorted(found) == ["--levels", "--max-tokens", "--requests", "--timeout"]
