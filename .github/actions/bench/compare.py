"""Compare two servers with `swarmtui ab`, or one with a shared file, and write the result to the summary of a CI step.

The options are environment variables, as `action.yml` sets them. Exit code 1 if head is slower; 0 if it is faster,
the same or if the runs do not tell; else that of the command that could not compare them.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPTIONS = ("LEVEL", "FIGURE", "DETECT", "MAX_RUNS", "WORKLOAD", "MODEL", "REQUESTS", "MAX_TOKENS", "READY_WITHIN")
SHARED_SUFFIX = ".swarm.json.gz"
# The options that `swarmtui run` has, too.
RUN_OPTIONS = {"LEVEL": "--levels", "MAX_RUNS": "--runs", "DETECT": "--detect", "WORKLOAD": "--workload",
               "MODEL": "--model", "REQUESTS": "--requests", "MAX_TOKENS": "--max-tokens"}  # fmt: skip


def main() -> int:
    if os.environ["BASE"].endswith(SHARED_SUFFIX):
        return compare_with_file(Path(os.environ["BASE"]).resolve())
    command = ["ab", "--yes", "--json", "--a", os.environ["BASE"], "--b", os.environ["HEAD"]]
    for name in OPTIONS:
        if os.environ.get(name):
            command += [f"--{name.lower().replace('_', '-')}", os.environ[name]]
    done = _swarmtui(*command)
    if done.returncode:
        return done.returncode
    result = json.loads(done.stdout)
    return report(result["decision"]["word"], summary(result))


def compare_with_file(file: Path) -> int:
    """Measure head with the plan of the inputs, and compare it with what somebody shared."""
    if os.environ.get("FIGURE", "out_tps") != "out_tps":
        sys.stderr.write("figure: a shared file is compared by out_tps\n")
        return 2
    given = [
        word for name, option in RUN_OPTIONS.items() if (value := os.environ.get(name)) for word in (option, value)
    ]
    with tempfile.TemporaryDirectory() as sessions, head_server(os.environ["HEAD"]) as url:
        where = ("--session-dir", sessions)
        ran = _swarmtui("run", "--endpoint", url, "--baseline", str(file), *given, *where, "--json")
        if ran.returncode:
            return ran.returncode
        done = _swarmtui("compare", str(file), "last", "--json", *where)
    if done.returncode:
        return done.returncode
    (pair,) = json.loads(done.stdout)["pairs"]
    if pair["refused"]:
        sys.stderr.write(f"{pair['sentence']}\n")
        return 2
    leading = [row for row in pair["rows"] if row["leads"] and row["verdict"]]
    word = leading[0]["verdict"]["word"] if leading and not pair["doubts"] else None
    return report(word or "not sure yet", file_summary(pair, word or "not sure yet", file.name))


@contextmanager
def head_server(head: str) -> Iterator[str]:
    """Yield the URL of the server; a command is started, and ended afterwards."""
    if "://" in head or head.startswith("sim:"):
        yield head
        return
    from swarmtui.client.session_client import StopControl
    from swarmtui.experiments.managed_server import ManagedServer, free_port
    from swarmtui.experiments.server_guardian import LaunchCommand
    from swarmtui.model.parsing import parse_seconds
    from swarmtui.model.redaction import Secrets

    port = free_port()
    launch = LaunchCommand(
        command=tuple(shlex.split(head.replace("{port}", str(port)))),
        url=f"http://127.0.0.1:{port}",
        ready=f"http://127.0.0.1:{port}/v1/models",
        ready_within_s=parse_seconds(os.environ.get("READY_WITHIN") or "10m", "ready-within"),
    )
    with tempfile.TemporaryDirectory() as folder:
        server = ManagedServer(launch, Path(folder) / "server.log", Secrets(), StopControl())
        with server:
            server.start()
            yield launch.url


def report(word: str, text: str) -> int:
    _append("GITHUB_STEP_SUMMARY", text)
    _append("GITHUB_OUTPUT", f"verdict={word}\n")
    return 1 if word == "slower" else 0


def summary(result: dict) -> str:
    """Return the result as Markdown: the verdict, and a table of the runs."""
    test, decision = result["test"], result["decision"]
    values = {side: [run["value"] for run in result["runs"] if run["side"] == side] for side in "AB"}
    rows = [f"| {n} | {a:,.4g} | {b:,.4g} |" for n, (a, b) in enumerate(zip(values["A"], values["B"], strict=True), 1)]
    means = [sum(values[side]) / len(values[side]) for side in "AB"]
    lines = [
        f"### swarmtui: {decision['word']}",
        "",
        f"head compared with base, {test['figure']}: {decision['sentence']}",
        "",
        "| run | base | head |",
        "| --: | --: | --: |",
        *rows,
        f"| mean | {means[0]:,.4g} | {means[1]:,.4g} |",
        "",
        f"- base: `{test['a']}`",
        f"- head: `{test['b']}`",
    ]
    return "\n".join(lines) + "\n"


def file_summary(pair: dict, word: str, name: str) -> str:
    """Return the comparison with a shared file as Markdown: the verdict, what differs, and the figures."""
    differences = ", ".join(f"{one['what']} {one['before']} → {one['after']}" for one in pair["differences"])
    rows = [row for row in pair["rows"] if row["before"] is not None and row["after"] is not None]
    lines = [
        f"### swarmtui: {word}",
        "",
        f"head compared with `{name}`: {pair['sentence']}",
        "",
        *([f"Different: {differences}", ""] if differences else []),
        "| C | figure | base | head |",
        "| --: | :-- | --: | --: |",
        *(f"| {row['c']} | {row['figure']} | {row['before']:,.4g} | {row['after']:,.4g} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _swarmtui(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "swarmtui", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


def _append(variable: str, text: str) -> None:
    """Append to the file that a variable names, or print the text outside of CI."""
    if path := os.environ.get(variable):
        with Path(path).open("a") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
