"""Files that somebody else wrote, or that are no files: each is one line and exit code 2, or a damaged row."""

from __future__ import annotations

import json
import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from swarmtui.files import MAX_JOURNAL, MAX_LINE, make_private_directory, read_file, read_lines
from tests.cli.programs import Sandbox
from tests.sessions.session_builders import full_session, write_session

SESSION, OTHER = "20261115-014455-3f9a", "20261115-014455-aaaa"
DEEP = 100_000
# Below a key that nothing reads: what has the wrong type is refused at once.
NESTED = b'{"other": ' + b"[" * DEEP


FILES = {
    "nested": b"x = " + b"[" * 2_000 + b"]" * 2_000 + b"\n",
    "nested JSON": NESTED,
    "digits": b"seed = " + b"9" * 5_000 + b"\n",
    "too large": b"seed = 99999999999999999999999\n",
    "not UTF-8": b'x = "\xff\xfe"\n',
    "NUL": b"\0" * 4096,
    "empty": b"",
}


def place(path: Path, kind: str) -> None:
    """Put a FIFO, a link to an endless device, a directory, a sparse file, or bytes in place of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "sparse":
            with path.open("wb") as file:
                file.truncate(50 << 30)
        case _:
            path.write_bytes(FILES[kind])


PLACED = ("fifo", "device", "directory", "sparse")
KINDS = (*PLACED, *FILES)
# What is wrong with the other texts is so in TOML only.
KINDS_OF_JSON = (*PLACED, "nested JSON", "not UTF-8", "NUL", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_unusable_file_is_one_line(sandbox: Sandbox, kind: str) -> None:
    path = sandbox.home / "given"
    place(path, kind)
    place(path.with_suffix(".json"), kind)
    commands = [
        ("tune", str(path), "--yes"),
        ("run", "--endpoint", "127.0.0.1:9", "--workload", str(path)),
        ("run", "--endpoint", "127.0.0.1:9", "--ca-file", str(path)),
        ("workloads", "check", str(path)),
        ("workloads", "show", str(path)),
        ("compare", str(path.with_suffix(".json")), str(path.with_suffix(".json"))),
    ]
    for ran, command in zip(sandbox.run_each(*commands), commands, strict=True):
        assert ran.code == 2 and ran.err and "Traceback" not in ran.err, ran
        assert kind != "sparse" or command[0] != "workloads" or "larger than" in ran.err, ran
    checks = []
    for form in ("jsonl", "sharegpt", "prompts"):
        workload = sandbox.home / f"{form}.toml"
        workload.write_text(f'kind = "{form}"\nname = "x"\nfile = "given"\n')
        checks.append(("workloads", "check", str(workload)))
    place(sandbox.home / ".config" / "swarmtui" / "config.toml", kind)
    for ran in sandbox.run_each(*checks, ("discover",)):
        assert ran.code in (0, 2) and "Traceback" not in ran.err, ran
    assert ran.code == (0 if kind == "empty" else 2)


@pytest.mark.parametrize("text", ["[" * DEEP, '[{"other":' + "[" * DEEP, "9" * 5_000, '"\\ud800"'])
def test_data_file_with_impossible_json_is_one_line(sandbox: Sandbox, text: str) -> None:
    (sandbox.home / "data").write_text(text)
    (sandbox.home / "data.json").write_text(text)
    commands: list[tuple[str, ...]] = [("compare", *[str(sandbox.home / "data.json")] * 2)]
    for form in ("jsonl", "sharegpt"):
        workload = sandbox.home / f"{form}.toml"
        workload.write_text(f'kind = "{form}"\nname = "x"\nfile = "data"\n')
        commands.append(("workloads", "check", str(workload)))
        commands.append(("run", "--endpoint", "127.0.0.1:9", "--workload", str(workload)))
    for ran in sandbox.run_each(*commands):
        assert ran.error_line(2)


@pytest.mark.parametrize("name", ["journal.jsonl", "index.json", "spool-0.jsonl", "detail.json"])
def test_bad_session_does_not_hide_the_others(sandbox: Sandbox, name: str) -> None:
    commands: list[tuple[str, ...]] = []
    for kind in KINDS_OF_JSON:
        root = sandbox.home / kind
        for session in (SESSION, OTHER):
            write_session(root / session, full_session())
        place(root / SESSION / name, kind)
        where = ("--session-dir", str(root))
        commands += [
            ("sessions", "--json", *where),
            ("sessions", "show", SESSION, *where),
            ("compare", SESSION, OTHER, *where),
            ("export", SESSION, "--format", "md", *where),
        ]
    found = sandbox.run_each(*commands)
    for kind, listed, *used in zip(KINDS_OF_JSON, *(found[at::4] for at in range(4)), strict=True):
        rows = {row["id"]: row for row in json.loads(listed.out)}
        assert rows.keys() == {SESSION, OTHER} and rows[OTHER]["problem"] is None
        is_damaged = name == "journal.jsonl" or (name == "spool-0.jsonl" and kind not in FILES)
        assert name in (rows[SESSION]["problem"] or "") or not is_damaged
        for ran in used:
            assert name in ran.error_line(2) if is_damaged else ran.code == 0, (kind, ran)


def test_deeply_nested_index_and_tuning_log(sandbox: Sandbox) -> None:
    root = sandbox.home / "data" / "swarmtui" / "sessions"
    write_session(root / SESSION, full_session())
    (root / SESSION / "index.json").write_bytes(NESTED)
    (row,) = sandbox.json("sessions", "--json")
    assert row["problem"] is None
    (root / ".tuning").mkdir()
    for content in (NESTED, b'{"changes": "\xff"}', b"9" * 5_000):
        (root / ".tuning" / "log.json").write_bytes(content)
        assert sandbox.run("sessions", "log").error_line(2)
    place(root / ".tuning" / "log.json", "fifo")
    assert sandbox.run("sessions", "log").error_line(2)


def test_directory_names_that_are_not_utf8_are_listed(sandbox: Sandbox) -> None:
    root = sandbox.home / "data" / "swarmtui" / "sessions"
    write_session(root / SESSION, full_session())
    (root / os.fsdecode(b"bad\xff\x1b[2J")).mkdir()
    rows = sandbox.json("sessions", "--json")
    assert [row["id"] for row in rows] == [SESSION, "bad\\xff\x1b[2J"]
    ran = sandbox.run("sessions")
    assert ran.code == 0 and "\x1b" not in ran.out


def test_impossible_values_are_one_line(sandbox: Sandbox) -> None:
    run = ("run", "--endpoint", "127.0.0.1:9")
    long = "9" * 5_000
    commands = [
        *(
            (*run, option, os.fsdecode(b"a=\xff"))
            for option in ("--label", "--note", "--tag", "--model", "--session-dir")
        ),
        *((*run, option, long) for option in ("--levels", "--requests", "--runs", "--duration", "--rate")),
        (*run, "--seed", str(1 << 64)),
        (*run, "--max-tokens", str(1 << 70)),
        (*run, "--metrics-url", "http://a..b/metrics"),
        ("run", "--endpoint", "https://a..b"),
        ("run", "--endpoint", f"https://{'a' * 70}.b"),
        ("sessions", "show", f"last~{long}"),
        ("sessions", "log", str(1 << 70)),
        ("export", "last", "--format", "md", "--session-dir", "/dev/null"),
    ]
    found = sandbox.run_each(*commands)
    for ran in found:
        assert ran.code == 2 and "Traceback" not in ran.err and ran.err, ran
    assert all("not UTF-8" in ran.error_line(2) for ran in found[:5])


def test_key_that_is_not_ascii_is_one_line(sandbox: Sandbox) -> None:
    for key in ("schlüssel", "a\nb", os.fsdecode(b"\xff")):
        ran = sandbox.run("run", "--endpoint", "127.0.0.1:9", "--api-key-env", "K", env={"K": key})
        assert "not ASCII" in ran.error_line(2)
    ran = sandbox.run("run", "--endpoint", "127.0.0.1:9", "--header", "X=ü")
    assert "ASCII" in ran.error_line(2)


def test_grid_of_a_trillion_configurations_is_one_line(sandbox: Sandbox) -> None:
    values = ", ".join(map(str, range(100)))
    grid = "\n".join(f'"--x{number}" = [{values}]' for number in range(6))
    (sandbox.home / "grid.toml").write_text(f'command = "x {{port}}"\n[grid]\n{grid}\n')
    assert "more than 10,000 configurations" in sandbox.run("tune", str(sandbox.home / "grid.toml")).error_line(2)


def test_working_directory_that_is_not_utf8_is_one_line(sandbox: Sandbox) -> None:
    (sandbox.home / os.fsdecode(b"\xff")).mkdir()
    before = ["sh", "-c", 'cd ./? && exec "$@"', "sh"]
    ran = sandbox.run("run", "--endpoint", "sim:moe-tp1", "--session-dir", "here", before=before)
    assert "UTF-8" in ran.error_line(2)


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * 50 + b"\ntwo\n" + b"y" * 50)
    assert list(read_lines(path, longest=10)) == [b"one\n", None, b"two\n", None]
    with path.open("ab") as file:
        file.truncate(MAX_LINE * 3)
    assert list(read_lines(path)) == [b"one\n", b"x" * 50 + b"\n", b"two\n", None]
    with pytest.raises(OSError, match="larger than 1 MB"):
        read_file(path, 1 << 20)


def test_small_file_takes_no_more_memory_than_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    tracemalloc.start()
    try:
        assert read_file(path, MAX_JOURNAL) == b"text"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177, 0o777])
def test_directories_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_private_directory(tmp_path / "data" / "sessions" / "one")
    finally:
        os.umask(before)
    for path in ("data", "data/sessions", "data/sessions/one"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700


def test_sessions_root_is_private(sandbox: Sandbox) -> None:
    before = ["sh", "-c", 'umask 0; exec "$@"', "sh"]
    words = ("--levels", "1", "--requests", "1", "--max-tokens", "4", "--warmup", "none", "--no-gpu")
    ran = sandbox.run("run", "--endpoint", "sim:moe-tp1?speed=50", *words, before=before)
    assert ran.code == 0, ran
    root = sandbox.home / "data" / "swarmtui" / "sessions"
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(root.parent.stat().st_mode) == 0o700
