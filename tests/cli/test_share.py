"""`share`, and what reads its file: `compare`, `run --baseline`, `sessions import`, `export`."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path

import pytest

from tests.cli.programs import SHORT, SIM, Sandbox

RUN = (*SHORT, "--levels", "1,2", "--quiet")
PRIVATE = (
    "--label",
    "zqlabel",
    "--note",
    "zqnote",
    "--tag",
    "customer=zqtag",
    "--server-flags",
    "--lora-modules zqlora",
)


@pytest.fixture
def measured(sandbox: Sandbox) -> Sandbox:
    assert sandbox.run_benchmark(SIM, *RUN, *PRIVATE).code == 0
    return sandbox


def in_sessions(sandbox: Sandbox, *arguments: str) -> tuple[str, ...]:
    return (*arguments, "--session-dir", str(sandbox.sessions))


def test_share_writes_a_card_a_post_and_a_file(measured: Sandbox) -> None:
    ran = measured.run(*in_sessions(measured, "share"))
    assert ran.code == 0, ran
    name = measured.session.name
    files = {suffix: measured.home / f"{name}{suffix}" for suffix in (".png", ".svg", ".md", ".swarm.json.gz")}
    image = files[".png"].read_bytes()
    assert struct.unpack(">II", image[16:24]) == (1200, 675)
    texts = [
        files[".svg"].read_text(),
        files[".md"].read_text(),
        gzip.decompress(files[".swarm.json.gz"].read_bytes()).decode(),
    ]
    for text in (*texts, ran.out.partition("Not in it")[0]):
        assert "SIMULATED" in text or '"simulated":true' in text
        assert not [
            word for word in ("zqlabel", "zqnote", "zqtag", "zqlora", "127.0.0.1", str(measured.home)) if word in text
        ]
    assert "Not in it: prompts and answers" in ran.out and "--lora-modules" in ran.out
    assert f"swarmtui compare {name}.swarm.json.gz last" in texts[1]
    listed = json.loads(measured.run(*in_sessions(measured, "share", "-o", "a.md", "--label", "mine", "--json")).out)
    assert listed["files"] == ["a.md"] and listed["contains"]["Label"] == "mine" and "keys" in listed["left_out"]


def test_shared_file_is_a_baseline_and_a_session_of_others(measured: Sandbox) -> None:
    first = measured.session.name
    assert measured.run(*in_sessions(measured, "share", "-o", "box.swarm.json.gz", "--label", "their box")).code == 0
    # Somebody else, who has no session yet.
    measured.run(*in_sessions(measured, "sessions", "rm", first))
    ran = measured.run_benchmark(SIM, *RUN, "--baseline", "box.swarm.json.gz")
    assert ran.code == 0 and re.search(r"with (1 agent|2 agents): ", ran.out), ran
    rows = {row["id"]: row for row in measured.list_sessions()}
    assert rows[first]["shared"] and rows[first]["label"] == "their box" and len(rows) == 2
    (own,) = set(rows) - {first}
    assert rows[own]["previous"] == first
    compared = measured.run_each(
        in_sessions(measured, "compare", "box.swarm.json.gz", "last", "--json"),
        in_sessions(measured, "compare", "last", "--baseline", "box.swarm.json.gz"),
        in_sessions(measured, "sessions", "show", first),
        in_sessions(measured, "export", first, "--format", "md"),
        in_sessions(measured, "share", "box.swarm.json.gz", "-o", "again.swarm.json.gz"),
        in_sessions(measured, "share", first, "--to", "mlperf-endpoints"),
        in_sessions(measured, "sessions", "import", "box.swarm.json.gz"),
    )
    assert [one.code for one in compared] == [0] * 7, compared
    (pair,) = json.loads(compared[0].out)["pairs"]
    assert pair["a"] == first and not pair["refused"] and {row["c"] for row in pair["rows"]} == {1, 2}
    assert "their box" in compared[1].out and compared[6].out == f"imported {first}\n"
    boxes = [(measured.home / name).read_bytes() for name in ("box.swarm.json.gz", "again.swarm.json.gz")]
    assert boxes[0] == boxes[1]
    points = json.loads((measured.home / f"{first}.mlperf-endpoints.json").read_bytes())["points"]
    assert [point["concurrency"] for point in points] == [1, 2]


def test_bad_shared_files_are_one_line(sandbox: Sandbox) -> None:
    path = sandbox.home / "x.swarm.json.gz"
    path.write_bytes(gzip.compress(b'{"kind": "swarmtui-session", "schema": 99, "summary": {}}'))
    commands = [
        in_sessions(sandbox, "share", path.name),
        in_sessions(sandbox, "compare", path.name, path.name),
        in_sessions(sandbox, "sessions", "import", path.name),
        in_sessions(sandbox, "run", "--endpoint", SIM, "--baseline", path.name),
        in_sessions(sandbox, "export", path.name, "--format", "md"),
    ]
    for ran in sandbox.run_each(*commands):
        assert "update swarmtui" in ran.error_line(2)
    path.write_bytes(b"\x1f\x8b nothing of the kind")
    for ran in sandbox.run_each(*commands[:3]):
        assert "cannot be unpacked" in ran.error_line(2)
    missing = sandbox.run_each(in_sessions(sandbox, "share", "y.swarm.json.gz"), in_sessions(sandbox, "share"))
    assert "no such file" in missing[0].error_line(2) and "no sessions yet" in missing[1].error_line(2)
    assert not Path(sandbox.sessions).exists()


def test_wrong_outputs_are_refused(measured: Sandbox) -> None:
    wrong = measured.run_each(
        in_sessions(measured, "share", "-o", "card.gif"),
        in_sessions(measured, "share", "-o", "no/such/folder.md"),
        in_sessions(measured, "share", "--level", "1"),
        in_sessions(measured, "share", "--to", "localmaxxing", "--level", "64"),
    )
    parts = ("must end with one of", "there is no directory", "is for --to", "measured are 1, 2")
    for ran, part in zip(wrong, parts, strict=True):
        assert part in ran.error_line(2)
