"""All mistakes of a command line are reported together, one line each, before anything is sent or started."""

from __future__ import annotations

import pytest

from tests.cli.programs import SIM, Sandbox


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
        (("share", "--level", "x"), {"--to": "nowhere", "--bogus": "1"}),
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
        (("sessions", "show", "one", "two", "--bogus"), ["--bogus", "two"]),
        (("traces", "record", "--bogus"), ["--bogus", "--from"]),
    ],
)
def test_arguments_are_named_beside_options(sandbox: Sandbox, command: tuple[str, ...], named: list[str]) -> None:
    assert sorted(mistakes_of(sandbox, *command)) == sorted(named)


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
