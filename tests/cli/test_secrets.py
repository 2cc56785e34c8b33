"""API keys and header values are sent to the server, and appear nowhere else."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from swarmtui.report import FORMATS
from tests.cli.programs import Sandbox, wait_until
from tests.cli.scripted_server import (
    ReceivedRequest,
    ScriptedHandler,
    model_list,
    respond_with_status,
    respond_with_words,
    scripted_server,
)

KEY = "canary-key-5d1f"
VALUE = "canary-value-77aa"
GIVEN = ("--api-key-env", "MY_KEY", "--header", f"X-Team={VALUE}", "--levels", "2", "--requests", "4")


def contains_secret(path: Path) -> bool:
    text = path.read_bytes()
    return KEY.encode() in text or VALUE.encode() in text


def leaks(sandbox: Sandbox) -> list[Path]:
    """Every file with a secret among sessions, sockets and temporary files."""
    found = [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in found)
    return [path for path in found if contains_secret(path)]


def test_secrets_are_sent_but_not_saved(sandbox: Sandbox) -> None:
    """A header can come from a variable: all users can read in the list of processes what was typed."""
    more = ("--header", "X-Api-Key=$MY_KEY", "--tag", f"api_key={KEY}", "--tag", "gpu=h200")
    with scripted_server() as server:
        ran = sandbox.run_benchmark(server.url, *GIVEN, *more, env={"MY_KEY": KEY})
        refused = sandbox.run("run", "--endpoint", server.url, "--header", "X=$NOT_SET")
    assert "NOT_SET is not set" in refused.error_line(2)
    assert ran.code == 0, ran
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {KEY}"}
    assert {request.headers["x-team"] for request in server.received} == {VALUE}
    assert {request.headers["x-api-key"] for request in server.received} == {KEY}
    assert KEY not in ran.out + ran.err and VALUE not in ran.out + ran.err
    assert leaks(sandbox) == []
    session = sandbox.show_session()["session"]
    assert sorted(session["endpoints"][0]["header_names"]) == ["X-Api-Key", "X-Team"]
    assert session["tags"] == {"api_key": "…", "gpu": "h200"}


def test_query_and_path_of_the_url_are_sent_but_not_saved(sandbox: Sandbox) -> None:
    listed: list[str] = []
    workload = sandbox.home / "nested.toml"
    nested = f'[extra.inner]\nlist = [{{ api_key = "{KEY}" }}]\n'
    workload.write_text(f'name = "x"\nkind = "prompts"\n[[prompts]]\ntext = "hello"\n{nested}')

    def listing(to: ScriptedHandler) -> None:
        listed.append(to.path)
        model_list(to)

    with scripted_server(respond_with_words(20, gap_s=0.01), listing) as server:
        url = f"{server.url}/token/{KEY}/v1?api-version=2024-10-21&user={VALUE}"
        program = sandbox.start_benchmark(url, "--workload", str(workload), "--levels", "1", "--requests", "8")
        wait_until(lambda: len(server.received) >= 2, "requests in flight")
        for process in sandbox.processes():
            if process.pid != program.pid:
                assert not contains_secret(Path("/proc") / str(process.pid) / "cmdline")
        ran = [program.wait()]
        workload.unlink()
        ran.append(sandbox.run("doctor", "--endpoint", url))
        ran.append(sandbox.run("probe", "--endpoint", url, "--session-dir", str(sandbox.sessions)))
        ran.append(sandbox.run("ab", "--a", url, "--b", url, "--aa", "--session-dir", str(sandbox.sessions)))
        sent = f"/token/{KEY}/v1/chat/completions?api-version=2024-10-21&user={VALUE}"
        assert {request.path for request in server.received} == {sent}
    assert ran[0].code == 0, ran[0]
    assert listed and all(f"/token/{KEY}/" in path and path.endswith(sent.partition("?")[2]) for path in listed)
    kept = ("--session-dir", str(sandbox.sessions))
    for form in FORMATS:
        ran.append(sandbox.run("export", "last", "--format", form, "-o", str(sandbox.home / f"out.{form}"), *kept))
        assert ran[-1].code == 0, ran[-1]
    ran += [sandbox.run("sessions", *kept), sandbox.run("sessions", "show", "last", *kept)]
    for one in ran:
        assert KEY not in one.out + one.err and VALUE not in one.out + one.err, one
    assert leaks(sandbox) == []
    assert not [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if KEY in path.name]
    shown = sandbox.list_sessions()[0]["endpoint"]
    assert shown == f"{server.url}/token/…/v1?api-version=2024-10-21&user=…"


@pytest.mark.parametrize(
    "given",
    [
        ("--endpoint", f"http://127.0.0.1:1/v1?api_key={KEY}"),
        ("--endpoint", f"http://127.0.0.1:1/v1?x=sk-{KEY}"),
        ("--endpoint", f"ftp://{KEY}:{KEY}@127.0.0.1:1/v1?x={KEY}"),
        ("--endpoint", "http://127.0.0.1:1", "--api-key-env", f"sk-{KEY}"),
        ("--endpoint", "http://127.0.0.1:1", "--api-key-env", "SK0123456789ABCDEF0"),
        ("--endpoint", "http://127.0.0.1:1", "--api-key-env", "canary_lower_case"),
        ("--endpoint", f"sk-{KEY}"),
        ("--endpoint", "http://127.0.0.1:1", "--header", f"Authorization: Bearer {KEY}"),
        ("--endpoint", "http://127.0.0.1:1", "--header", f"Authorization: Bearer {KEY}="),
        ("--endpoint", "http://127.0.0.1:1", "--header", f"X-Key={KEY}\udcff"),
        ("--endpoint", "http://127.0.0.1:1", "--hosts", f"ray://me:{KEY}@127.0.0.1:1"),
        ("--endpoint", "http://127.0.0.1:1", "--metrics-url", f"http://me:{KEY}@127.0.0.1:1/metrics"),
    ],
)
def test_keys_in_the_wrong_place_are_refused_and_not_repeated(sandbox: Sandbox, given: tuple[str, ...]) -> None:
    ran = sandbox.run("run", *given)
    said = ran.error_line(2)
    assert "canary" not in said and "0123456789" not in said
    told = ("environment variable", "ftp", "no endpoint named", "K=V", "NAME=VALUE", "UTF-8", "HOST:PORT", "password")
    assert any(words in said for words in told)


def test_no_command_repeats_the_key_of_a_url(sandbox: Sandbox) -> None:
    url, path = f"http://127.0.0.1:1/v1?api_key={KEY}", f"http://127.0.0.1:1/token/{KEY}/v1"
    named = [(name, "--endpoint", url) for name in ("run", "capacity", "probe", "doctor")]
    given = [("quick", url), ("limits", url), ("limits", path), ("doctor", url), ("run", url), (url,)]
    for words, ran in zip([*named, *given], sandbox.run_each(*named, *given), strict=True):
        assert ran.code in (1, 2, 3) and KEY not in ran.out + ran.err, words[0]


def test_key_in_the_command_of_a_server_is_not_repeated(sandbox: Sandbox) -> None:
    """A variable is no command: the message about it, and the commands that need no confirmation, mask its value."""
    command = f"HF_TOKEN={KEY} nowhere --token {KEY} --port {{port}}"
    ran = sandbox.run("ab", "--a", command, "--aa", "--yes", "--json", "--session-dir", str(sandbox.sessions))
    assert ran.code == 3 and "HF_TOKEN=…" in ran.err, ran
    assert KEY not in ran.out + ran.err
    files = [path for path in sandbox.sessions.rglob("*") if path.is_file()]
    assert "ab.json" in {path.name for path in files}
    assert [path for path in files if contains_secret(path)] == []


# Imported by every Python process: one of them fails with an error that contains what it was given.
FAULTY = """
import sys
at = {at!r}
if at == "worker" and "swarmtui.loadgen.worker" in sys.orig_argv:
    import swarmtui.loadgen.endpoint_pool as module
    def fail(self, loop, clock, number, target):
        raise ValueError(f"bad {{target}}")
    module.EndpointPool.__init__ = fail
elif at in ("session process", "thread") and "swarmtui.session_process" in sys.orig_argv:
    import threading
    import swarmtui.session_process.live_levels as module
    def fail(self, record):
        raise ValueError({text!r})
    def fail_in_thread(self, record):
        threading.Thread(target=fail, args=(self, record)).start()
    module.LevelRecords.add = fail if at == "session process" else fail_in_thread
elif at == "client" and "run" in sys.argv:
    import swarmtui.cli.follow as module
    def fail(*args, **options):
        raise ValueError({text!r})
    module.follow_run = fail
"""


@pytest.mark.parametrize("at", ["worker", "session process", "thread", "client"])
def test_internal_errors_are_reported_without_secrets(sandbox: Sandbox, at: str) -> None:
    hooks = sandbox.home / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(FAULTY.format(at=at, text=f"bad {KEY} {VALUE}"))
    env = {"MY_KEY": KEY, "PYTHONPATH": f"{hooks}:{sandbox.environment['PYTHONPATH']}"}
    with scripted_server() as server:
        ran = sandbox.run_benchmark(f"{server.url}/token/{KEY}/v1?user={VALUE}", *GIVEN, env=env)
    shutil.rmtree(hooks)
    assert ran.code, ran
    assert KEY not in ran.out + ran.err and VALUE not in ran.out + ran.err, ran
    files = [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if path.is_file()]
    (log,) = [path for path in files if path.name == ("crash.txt" if at == "client" else "errors.log")]
    assert "ValueError: bad" in log.read_text() and "…" in log.read_text()
    assert [path for path in files if contains_secret(path)] == []
    # A log that is left behind fails the test.
    log.unlink()


def test_key_in_an_error_response_is_not_printed(sandbox: Sandbox) -> None:
    def echo_key(to: ScriptedHandler, request: ReceivedRequest) -> None:
        respond_with_status(401, f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode())(to, request)

    with scripted_server(echo_key) as server:
        ran = sandbox.run_benchmark(server.url, *GIVEN, env={"MY_KEY": KEY})
    assert ran.code == 3, ran
    assert KEY not in ran.out + ran.err
    assert leaks(sandbox) == []


def test_secrets_are_not_in_command_lines_or_environments(sandbox: Sandbox) -> None:
    """Command lines can be read by all users, environments by all processes of the same user."""
    with scripted_server(respond_with_words(100, gap_s=0.05)) as server:
        program = sandbox.start_benchmark(server.url, *GIVEN, env={"MY_KEY": KEY})
        wait_until(lambda: len(server.received) >= 2, "requests in flight")
        ours = [process for process in sandbox.processes() if process.pid != program.pid]
        assert len(ours) == 2
        for process in ours:
            proc = Path("/proc") / str(process.pid)
            assert not contains_secret(proc / "cmdline") and not contains_secret(proc / "environ")
        assert KEY.encode() not in (Path("/proc") / str(program.pid) / "cmdline").read_bytes()
        program.signal_group(signal.SIGINT)
        wait_until(lambda: "stopping" in program.stderr_so_far(), "the first Ctrl-C is handled")
        program.signal_group(signal.SIGINT)
        program.wait()
