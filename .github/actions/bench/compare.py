"""Compare two servers with `swarmtui ab`, and write the result to the summary of a CI step.

The options are environment variables, as `action.yml` sets them. Exit code 1 if head is slower; 0 if it is faster,
the same or if the runs do not tell; else that of `swarmtui ab`, which could not compare them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

OPTIONS = ("LEVEL", "FIGURE", "DETECT", "MAX_RUNS", "WORKLOAD", "MODEL", "REQUESTS", "MAX_TOKENS", "READY_WITHIN")


def main() -> int:
    command = [sys.executable, "-P", "-m", "swarmtui", "ab", "--yes", "--json"]
    command += ["--a", os.environ["BASE"], "--b", os.environ["HEAD"]]
    for name in OPTIONS:
        if os.environ.get(name):
            command += [f"--{name.lower().replace('_', '-')}", os.environ[name]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.returncode
    result = json.loads(done.stdout)
    _append("GITHUB_STEP_SUMMARY", summary(result))
    _append("GITHUB_OUTPUT", f"verdict={result['decision']['word']}\n")
    return 1 if result["decision"]["word"] == "slower" else 0


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


def _append(variable: str, text: str) -> None:
    """Append to the file that a variable names, or print the text outside of CI."""
    if path := os.environ.get(variable):
        with Path(path).open("a") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
