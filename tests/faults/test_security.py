"""Secrets, access to files and sockets, and input that must not be executed."""

from __future__ import annotations

import ast
import os
import re
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trustme

from swarmtui.client.catalogue import inspect_server
from swarmtui.client.doctor import check_endpoint
from swarmtui.model.client_protocol import Stop, Subscribe
from swarmtui.model.config import EndpointConfig
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.journal import RequestEntry
from swarmtui.model.session import Event
from swarmtui.model.worker_protocol import pack
from swarmtui.processes import finished_counts
from swarmtui.report import export
from swarmtui.sessions.store import load_session
from tests.cli.programs import ROOT, Sandbox, wait_until
from tests.cli.scripted_server import ReceivedRequest, ScriptedHandler, model_list, respond_with_words, scripted_server
from tests.cli.test_tls import https_url, tls_server
from tests.faults.kill_checks import HoldingResponder
from tests.sessions.session_builders import full_session, record, write_session
from tests.telemetry.text_server import serving

KEY, VALUE = "canary-key-5d1f", "canary-value-77aa"
GIVEN = ("--api-key-env", "MY_KEY", "--header", f"X-Team={VALUE}", "--no-gpu")
SECRET = {"MY_KEY": KEY, "AWS_SECRET_ACCESS_KEY": "canary-aws", "HTTPS_PROXY": "http://canary-proxy:1"}


def leaks(text: str | bytes) -> bool:
    data = text.encode() if isinstance(text, str) else text
    return b"canary" in data


# keys


def echo_secrets(to: ScriptedHandler, request: ReceivedRequest) -> None:
    """Repeat the key wherever possible."""
    to.begin_stream()
    chunk = {
        "id": f"id-{KEY}",
        "choices": [{"index": 0, "delta": {"content": f"your key is {KEY}"}, "finish_reason": f"stop {KEY}"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 4},
    }
    to.event(msgspec.json.encode(chunk).decode())
    if len(to.server.received) % 2:
        team = request.headers.get("x-team")
        to.event(f'{{"error":{{"message":"bad key {KEY} of {team}"}}}}')
    to.end_stream()


def test_secrets_are_neither_written_nor_printed(sandbox: Sandbox) -> None:
    kept = ("--session-dir", str(sandbox.sessions))
    printed = []
    with scripted_server(echo_secrets) as server:
        words = ("--levels", "1", "--requests", "6", "--warmup", "none", "--keep-text", "--seed", "1")
        flags = f"--api-key canary-flag --max-num-seqs 4 --header={VALUE} HF_TOKEN=canary-hub"
        workload = sandbox.home / "workload.toml"
        workload.write_text(
            'name = "x"\nkind = "prompts"\n[[prompts]]\ntext = "hello"\n[extra]\nuser_token = "canary-extra"\n'
        )
        metrics = f"{server.url}/metrics?token=canary-query"
        server.listing = lambda to: (
            to.whole(200, b"vllm:num_requests_running 1\n", "text/plain") if "/metrics" in to.path else model_list(to)
        )
        given = ("--server-flags", flags, "--workload", str(workload), "--metrics-url", metrics, *GIVEN)
        printed.append(sandbox.run_benchmark(server.url, *given, *words, env=SECRET))
        workload.unlink()
        printed.append(sandbox.run("probe", "--endpoint", server.url, *GIVEN[:2], *kept, env=SECRET))
    for form in ("md", "csv", "json", "toml", "html"):
        out = str(sandbox.home / f"exported.{form}")
        printed.append(sandbox.run("export", "last", "--format", form, "-o", out, *kept, env=SECRET))
        assert Path(out).exists()
    printed.append(sandbox.run("sessions", *kept, env=SECRET))
    printed.append(sandbox.run("sessions", "show", "last", *kept, env=SECRET))
    assert any(request.headers["authorization"] == f"Bearer {KEY}" for request in server.received)
    for ran in printed:
        assert not leaks(ran.out + ran.err), ran
    files = [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if path.is_file()]
    assert sum(path.name == "journal.jsonl" for path in files) >= 1
    assert [path for path in files if leaks(path.read_bytes())] == []


def test_redirects_are_not_followed(sandbox: Sandbox) -> None:
    """Neither for requests nor for model lists and metrics: another host must not get the key."""
    with scripted_server() as elsewhere:

        def redirect(to: ScriptedHandler, request: ReceivedRequest | None = None) -> None:
            to.send_response(307)
            to.send_header("location", elsewhere.url + to.path)
            to.send_header("content-length", "0")
            to.end_headers()

        listed: list[str] = []
        elsewhere.listing = lambda to: listed.append(to.path)
        with scripted_server(redirect, listing=redirect) as server:
            ran = sandbox.run_benchmark(
                server.url, *GIVEN, "--model", "m", "--levels", "1", "--warmup", "none", env=SECRET
            )
        assert ran.code == 3 and "http_307" in ran.err, ran
        assert (elsewhere.received, listed) == ([], [])


def test_key_is_sent_to_metrics_of_the_same_scheme_host_and_port_only(sandbox: Sandbox) -> None:
    """An https endpoint with its metrics over http at another port is the example in the README."""
    received: dict[str, set[str]] = {"other": set(), "own": set()}

    def page(to: ScriptedHandler, which: str) -> None:
        received[which].add(f"{to.headers['authorization']} {to.headers['x-team']}")
        to.whole(200, b"vllm:num_requests_running 1\n", "text/plain")

    def own_page(to: ScriptedHandler) -> None:
        page(to, "own") if to.path == "/metrics" else model_list(to)

    with (
        tls_server(trustme.CA().issue_cert("127.0.0.1"), listing=own_page) as server,
        scripted_server(listing=lambda to: page(to, "other")) as metrics,
    ):
        other = f"http://127.0.0.1:{metrics.server_address[1]}/metrics"
        ran = sandbox.run_benchmark(
            https_url(server), *GIVEN, "--insecure", "--metrics-url", other,
            "--metrics-url", f"{https_url(server)}/metrics", "--levels", "2", "--requests", "8", "--warmup", "none",
            env=SECRET,
        )  # fmt: skip
    assert ran.code == 0, ran
    assert {request.headers["authorization"] for request in server.received} == {f"Bearer {KEY}"}
    assert received == {"other": {"None None"}, "own": {f"Bearer {KEY} {VALUE}"}}


def test_identifying_a_server_sends_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `discover`, `doctor` and the app do."""
    monkeypatch.setenv("MY_KEY", KEY)
    with serving({"/v1/models": '{"data":[{"id":"mine"}]}'}) as server:
        found = inspect_server(EndpointConfig(url=server.url, api_key_env="MY_KEY", headers={"Cookie": VALUE}))
        check_endpoint(EndpointConfig(url=server.url, api_key_env="MY_KEY"))
    assert found.models == ("mine",)
    assert set(server.authorizations) == {None}


# A server has many ways to say a key: in any case, encoded, in parts, across the end of what is kept.
LONG_KEY = "canary-8Qm4zT2xW9aB3cD5eF7gH1jK6mN8pR0sV"


def spoken_parts(data: bytes) -> set[str]:
    """Return the parts of the key, of 8 characters and more, that are in the data, also encoded."""
    text = data.decode(errors="replace").lower()
    forms = [LONG_KEY, *(b64encode(b"x" * shift + LONG_KEY.encode()).decode()[4:-4] for shift in range(3))]
    parts = {form[at : at + 8].lower() for form in forms for at in range(len(form) - 7)} | {VALUE[:12]}
    return {part for part in parts if part in text}


def test_key_is_redacted_wherever_a_server_says_it(sandbox: Sandbox) -> None:
    encoded = b64encode(f"Bearer {LONG_KEY}".encode()).decode()
    said = [LONG_KEY, LONG_KEY.lower(), LONG_KEY.upper(), encoded, LONG_KEY[:30], LONG_KEY[9:]]

    def listing(to: ScriptedHandler) -> None:
        match to.path:
            case "/v1/models":
                rows = [{"id": f"model-{LONG_KEY}", "owned_by": "vllm"}]
                to.whole(200, msgspec.json.encode({"data": rows}))
            case "/version":
                to.whole(200, msgspec.json.encode({"version": f"1.0+{LONG_KEY}"}))
            case "/metrics":
                labels = f'cache_dtype="{LONG_KEY}",block_size="{encoded}"'
                page = f"vllm:num_requests_running 1\nvllm:cache_config_info{{{labels}}} 1\n"
                to.whole(200, page.encode(), "text/plain")
            case _:
                to.whole(404, LONG_KEY.encode())

    def answer(to: ScriptedHandler, request: ReceivedRequest) -> None:
        number = len(to.server.received)
        assert request.body["model"] == f"model-{LONG_KEY}", "requests repeat the exact name"
        match number % 6:
            case 0:
                to.whole(500, b"x" * (490 - number) + (VALUE if number == 6 else LONG_KEY).encode())
            case 1:
                to.whole(400, msgspec.json.encode({"error": {"message": "y" * (295 - number) + " ".join(said)}}))
            case 2:
                to.whole(200, b"{}", f"text/{LONG_KEY}")
            case 3:
                to.wfile.write(f"HTTP/1.1 {LONG_KEY}\r\n\r\n".encode())
                to.close_connection = True
            case 4:
                to.begin_stream()
                to.event(f'{{"id": "{LONG_KEY.lower()}", "x": {LONG_KEY}')
                to.end_stream()
            case _:
                to.begin_stream()
                for word in (*said, *LONG_KEY):
                    to.event(msgspec.json.encode({"choices": [{"delta": {"content": word}}]}).decode())
                done = {"id": encoded, "choices": [{"delta": {}, "finish_reason": LONG_KEY}]}
                to.event(msgspec.json.encode(done).decode())
                to.end_stream()

    words = ("--levels", "1", "--requests", "18", "--warmup", "none", "--keep-text", "--seed", "1")
    with scripted_server(answer, listing=listing) as server:
        ran = sandbox.run_benchmark(server.url, *GIVEN, *words, env={"MY_KEY": LONG_KEY})
    assert len(server.received) >= 18, ran
    printed = [ran]
    for form in ("md", "csv", "json", "toml", "html"):
        out = str(sandbox.home / f"exported.{form}")
        printed.append(
            sandbox.run("export", "last", "--format", form, "-o", out, "--session-dir", str(sandbox.sessions))
        )
    assert [spoken_parts((each.out + each.err).encode()) for each in printed] == [set()] * 6
    files = [path for top in (sandbox.home, sandbox.runtime) for path in top.rglob("*") if path.is_file()]
    journal = next(path for path in files if path.name == "journal.jsonl").read_text()
    assert '"model":"model-…"' in journal and "1.0+…" in journal and "text/…" in journal
    assert {path.name: found for path in files if (found := spoken_parts(path.read_bytes()))} == {}


# processes and files


def test_child_processes_get_a_minimal_environment(sandbox: Sandbox) -> None:
    allowed = {
        "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE",
        "SSL_CERT_DIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
        finished_counts.VARIABLE,
    }  # fmt: skip
    endless = ("--levels", "2", "--requests", "100000", "--max-tokens", "20")
    command = sandbox.start_benchmark("sim:moe-tp1?speed=20", *GIVEN, *endless, env=SECRET)
    parts = ("swarmtui.session_process", "swarmtui.loadgen.worker", "swarmtui.sim")
    wait_until(lambda: all(sandbox.processes(part) for part in parts), "all processes")
    for part in parts:
        (found,) = sandbox.processes(part)
        names = (Path("/proc") / str(found.pid) / "environ").read_bytes()
        assert {name.partition("=")[0] for name in names.decode().split("\0") if name} <= allowed
        assert not leaks(names) and not leaks(found.command_line)
    listening = wait_until(lambda: _listening(sandbox), "the simulator listens")
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    command.process.terminate()
    command.wait()


# Writes the environments of itself and of its guardian, and fails.
DUMP = """
import os, sys
from pathlib import Path
found, pid = {}, os.getpid()
while not found or "server_guardian" in Path(f"/proc/{pid}/cmdline").read_text():
    found[pid] = Path(f"/proc/{pid}/environ").read_text()
    pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
Path(sys.argv[1]).write_text(chr(1).join(found.values()))
print("my keys:", *os.environ.values(), flush=True)
sys.exit(1)
"""
KEYS = {"MY_KEY": KEY, "HF_TOKEN": "canary-hub", "PLAIN": "kept", "ODD": KEY, "CONFIGURED": "canary-other"}


def environments(path: Path) -> list[dict[str, str]]:
    texts = path.read_text().split(chr(1))
    return [dict(line.split("=", 1) for line in text.split("\0") if line) for text in texts]


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("command", ["ab", "tune"])
def test_started_servers_get_keys_by_name_only(sandbox: Sandbox, command: str, passed: bool) -> None:
    script, out = sandbox.home / "dump.py", sandbox.home / "environment"
    script.write_text(DUMP)
    config = sandbox.home / ".config" / "swarmtui" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[endpoints.other]\nurl = "http://127.0.0.1:9"\napi_key_env = "CONFIGURED"\n')
    line = f"{sys.executable} {script} {out} {{port}}"
    if command == "ab":
        line = f"{line} --api-key canary-argument"
        words = ["ab", "--a", line, "--aa", "--json", "--api-key-env", "MY_KEY", *(["--pass-env", "HF_TOKEN"] * passed)]
    else:
        passing = 'pass_env = ["HF_TOKEN"]\n' if passed else ""
        text = f'command = "{line}"\n{passing}[grid]\n"--x" = [1]\n[plan]\napi_key_env = "MY_KEY"\n'
        (sandbox.home / "grid.toml").write_text(text)
        words = ["tune", str(sandbox.home / "grid.toml")]
    ran = sandbox.run(*words, "--yes", "--session-dir", str(sandbox.sessions), env=KEYS)
    assert out.exists() and "my keys:" in ran.out + ran.err, ran
    # The confirmation shows what runs, with everything in it; the result does not.
    assert not leaks(ran.out + ran.err.replace("canary-argument", "", 1))
    logs = list(sandbox.sessions.rglob("*.log"))
    assert any("my keys:" in log.read_text() for log in logs) and not any(leaks(log.read_text()) for log in logs)
    found_in = environments(out)
    assert len(found_in) == 3  # the server, its guardian and the watcher
    for found in found_in:
        assert {name: found[name] for name in KEYS if name in found} == (
            {"PLAIN": "kept", "HF_TOKEN": "canary-hub"} if passed else {"PLAIN": "kept"}
        )
        assert found["HOME"] == str(sandbox.home)


def test_key_of_an_endpoint_is_not_sent_to_a_started_server(sandbox: Sandbox) -> None:
    config = sandbox.home / ".config" / "swarmtui" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[endpoints.mine]\nurl = "http://127.0.0.1:9"\napi_key_env = "MY_KEY"\n')
    ran = sandbox.run("ab", "--a", "mine", "--b", "serve {port}", "--yes", env={"MY_KEY": KEY})
    assert "would be sent to the started server" in ran.error_line(2)


def _listening(sandbox: Sandbox) -> list[Any]:
    return [
        connection
        for process in sandbox.processes()
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_modules_are_not_imported_from_the_working_directory(sandbox: Sandbox) -> None:
    """Neither by the command nor by its child processes."""
    executed = sandbox.home / "executed"
    for name in ("h11", "httptools", "msgspec", "heapq", "swarmtui"):
        (sandbox.home / f"{name}.py").write_text(f"open({str(executed)!r}, 'w')\n")
    ran = sandbox.run_benchmark(
        "sim:moe-tp1?speed=50", "--levels", "1", "--requests", "2", "--max-tokens", "8", env={"PYTHONSAFEPATH": "1"}
    )
    assert ran.code == 0, ran
    assert not executed.exists()


def test_sessions_and_sockets_are_accessible_to_their_owner_only(sandbox: Sandbox) -> None:
    holding = HoldingResponder(1)
    with scripted_server(holding) as server:
        command = sandbox.start_benchmark(server.url, "--levels", "2", "--requests", "40", "--no-gpu")
        (sock,) = wait_until(lambda: list((sandbox.runtime / "swarmtui").glob("*.sock")), "a socket")
        assert stat.S_IMODE(sock.stat().st_mode) == 0o600
        assert stat.S_IMODE(sock.parent.stat().st_mode) == 0o700
        holding.release.set()
        assert command.wait().code == 0
    assert stat.S_IMODE(sandbox.session.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in sandbox.session.iterdir()} == {0o600}


def test_socket_directory_open_to_others_is_refused(sandbox: Sandbox) -> None:
    (sandbox.runtime / "swarmtui").mkdir(mode=0o755)
    error = sandbox.run_benchmark("127.0.0.1:9").error_line(2)
    assert "must belong to you alone (mode 0700)" in error


# input is not executed

CODE = "__import__('os').system('touch executed')"


@pytest.mark.parametrize("option", ["--fail-if", "--slo", "--levels", "--requests", "--workload", "--endpoint"])
def test_command_line_values_are_not_executed(sandbox: Sandbox, option: str) -> None:
    endpoint = () if option == "--endpoint" else ("--endpoint", "127.0.0.1:9")
    for code in (CODE, "$(touch executed)"):
        assert sandbox.run("run", *endpoint, f"{option}={code}").code in (2, 3)
    assert not (sandbox.home / "executed").exists()


def test_a_workload_is_not_executed(sandbox: Sandbox) -> None:
    prompt = f"{CODE} {{0}} $(id)"
    text = f'name = "x"\nkind = "prompts"\nsystem = "${{HOME}} %(x)s"\n[[prompts]]\ntext = "{prompt}"\n'
    (sandbox.home / "workload.toml").write_text(text)
    with scripted_server() as server:
        ran = sandbox.run_benchmark(
            server.url, "--workload", str(sandbox.home / "workload.toml"), "--levels", "1", "--requests", "1",
            "--warmup", "none", "--no-gpu",
        )  # fmt: skip
    assert ran.code == 0, ran
    sent = " ".join(message["content"] for message in server.received[-1].body["messages"])
    assert prompt in sent and "${HOME} %(x)s" in sent
    assert not (sandbox.home / "executed").exists()


FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "code",
    "codeop",
}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "execfile"}
FORBIDDEN_METHODS = {("os", "system"), ("os", "popen"), ("subprocess", "getoutput"), ("subprocess", "getstatusoutput")}
NAMES = re.compile(
    rf"\b({'|'.join(FORBIDDEN_CALLS | {method for _, method in FORBIDDEN_METHODS})})\(|\bshell="
    rf"|\b(import|from)\b.*\b({'|'.join(FORBIDDEN_MODULES)})\b"
)


def _forbidden(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name.split(".")[0] in FORBIDDEN_MODULES for name in names)
        case ast.ImportFrom(module=str(module)):
            return module.split(".")[0] in FORBIDDEN_MODULES
        case ast.Call(func=ast.Name(id=name)):
            return name in FORBIDDEN_CALLS
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attribute)) if (
            owner,
            attribute,
        ) in FORBIDDEN_METHODS:
            return True
        case ast.keyword(arg="shell", value=ast.Constant(value=True)):
            return True
    return False


def test_code_does_not_unpickle_evaluate_or_use_a_shell() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', '?')}"
        for path in sorted((ROOT / "swarmtui").rglob("*.py"))
        if NAMES.search(text := path.read_text())  # to parse all takes seconds
        for node in ast.walk(ast.parse(text))
        if _forbidden(node)
    ]
    assert found == []
    assert _forbidden(ast.parse("eval('1')").body[0].value)  # type: ignore[attr-defined]


# HTML reports

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)> javascript:alert(4) </style>"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "embed", "base", "form"):
            self.bad.append(tag)
        for name, value in attrs:
            leads_out = name in ("href", "src", "action") and not (value or "").startswith(("#", "data:,"))
            if name.startswith("on") or leads_out:
                self.bad.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_report_escapes_all_text(tmp_path: Path) -> None:
    entries = full_session(
        label=HOSTILE,
        note=HOSTILE,
        workload=HOSTILE,
        server_flags=HOSTILE,
        tags={HOSTILE: HOSTILE},
        endpoints=(Endpoint(url=f"http://{HOSTILE}", model=HOSTILE, engine=HOSTILE),),
    )
    failed = record(999, c=2, stage=2, error=HOSTILE, error_detail=HOSTILE, type=HOSTILE, finish_reason=HOSTILE)
    event = Event(t_ns=entries[1].t_ns, name=HOSTILE, detail=HOSTILE)  # type: ignore[union-attr]
    write_session(tmp_path / "20261115-014455-3f9a", [*entries[:-1], RequestEntry(record=failed), event, entries[-1]])
    page = _Page()
    page.feed(export([load_session(tmp_path, "last")], "html").decode())
    assert page.bad == []
    assert "<script>alert(1)</script>" in "".join(page.text)


# clients of the socket

OTHER_UID = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_other_users_are_rejected_whatever_the_file_modes(sandbox: Sandbox) -> None:
    """The user id of the client is checked, even if the directories are open to all."""
    with scripted_server(respond_with_words(3, gap_s=0.02)) as server:
        command = sandbox.start_benchmark(server.url, "--levels", "2", "--requests", "100000", "--no-gpu")
        (path,) = wait_until(lambda: list((sandbox.runtime / "swarmtui").glob("*.sock")), "a socket")
        wait_until(lambda: server.received, "the first request")
        stop = pack(Stop(grace_s=0.0)) + pack(Subscribe(hz=20.0))
        assert _reply_size(OTHER_UID, path, stop) == "PermissionError"
        for opened in (sandbox.runtime, path.parent, path):
            opened.chmod(0o777)
        assert _reply_size(OTHER_UID, path, stop) == "0 bytes"
        before = len(server.received)
        wait_until(lambda: len(server.received) > before + 20, "the run continues")
        assert int(_reply_size(os.getuid(), path, stop).split()[0]) > 0
        assert command.wait().code == 4


def _reply_size(uid: int, path: Path, message: bytes) -> str:
    """Return how many bytes a process of that user gets in reply to a message, or why it gets none."""
    code = (
        "import os, socket, sys\n"
        "os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "client, received = socket.socket(socket.AF_UNIX), 0\n"
        "try:\n"
        "    client.connect(sys.argv[2])\n"
        "    client.sendall(bytes.fromhex(sys.argv[3]))\n"
        "    while part := client.recv(1 << 16):\n"
        "        received += len(part)\n"
        "except PermissionError as error:\n"
        "    sys.exit(print(type(error).__name__))\n"
        "except ConnectionError:\n"
        "    pass\n"
        "print(received, 'bytes')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(uid), str(path), message.hex()],
        capture_output=True, text=True, timeout=60, check=True, cwd="/",
    )  # fmt: skip
    return ran.stdout.strip()


NESTED = b"\x82\xa4type\xa9Subscribe\xa1x" + b"\x91" * 100_000


def test_client_with_another_protocol_is_disconnected(sandbox: Sandbox) -> None:
    holding = HoldingResponder(1)
    with scripted_server(holding) as server:
        command = sandbox.start_benchmark(server.url, "--levels", "2", "--requests", "30", "--complete", "--no-gpu")
        (path,) = wait_until(lambda: list((sandbox.runtime / "swarmtui").glob("*.sock")), "a socket")
        wait_until(lambda: server.received, "the first request")
        for message in (b"GET / HTTP/1.1\r\n\r\n", len(NESTED).to_bytes(4, "big") + NESTED, b"\xff" * 64, b""):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(message)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(60)
                while client.recv(1 << 16):
                    pass
        holding.release.set()
        assert command.wait().code == 0
    assert sandbox.show_session()["levels"][0]["ok"] == 30
