"""Nobody is let in, nothing secret gets out, and nothing that is read is ever carried out."""

from __future__ import annotations

import ast
import os
import socket
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from swarmtui.model.client_protocol import Stop, Subscribe
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.session import Event, Request
from swarmtui.model.worker_protocol import pack
from swarmtui.sessions.export import export
from swarmtui.sessions.store import load
from tests.cli.programs import ROOT, Place, until
from tests.cli.scripted import Answering, Asked, scripted, words
from tests.sessions.made_sessions import record, whole, write

KEY, VALUE = "canary-key-5d1f", "canary-value-77aa"
GIVEN = ("--api-key-env", "MY_KEY", "--header", f"X-Team={VALUE}", "--no-gpu")
SECRET = {"MY_KEY": KEY, "AWS_SECRET_ACCESS_KEY": "canary-aws", "HTTPS_PROXY": "http://canary-proxy:1"}


def tells(text: str | bytes) -> bool:
    data = text.encode() if isinstance(text, str) else text
    return b"canary" in data


# keys


def indiscreet(to: Answering, asked: Asked) -> None:
    """Says the key back wherever it can."""
    to.begin_stream()
    chunk = {
        "id": f"id-{KEY}",
        "choices": [{"index": 0, "delta": {"content": f"your key is {KEY}"}, "finish_reason": f"stop {KEY}"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 4},
    }
    to.event(msgspec.json.encode(chunk).decode())
    if len(to.server.asked) % 2:
        to.event(f'{{"error":{{"message":"bad key {KEY} of {VALUE}"}}}}')
    to.end_stream()


def test_a_key_is_in_nothing_that_we_write_or_print(place: Place) -> None:
    kept = ("--session-dir", str(place.sessions))
    printed = []
    with scripted(indiscreet) as server:
        words = ("--levels", "1", "--requests", "6", "--warmup", "none", "--keep-text", "--seed", "1")
        printed.append(place.measure(server.url, *GIVEN, *words, env=SECRET))
        printed.append(place.run("probe", "--endpoint", server.url, *GIVEN[:4], *kept, env=SECRET))
    for form in ("md", "csv", "json", "toml", "html"):
        out = str(place.home / f"exported.{form}")
        printed.append(place.run("export", "last", "--format", form, "-o", out, *kept, env=SECRET))
        assert Path(out).exists()
    printed.append(place.run("sessions", *kept, env=SECRET))
    printed.append(place.run("sessions", "show", "last", *kept, env=SECRET))
    assert any(asked.headers["authorization"] == f"Bearer {KEY}" for asked in server.asked)
    for ran in printed:
        assert not tells(ran.out + ran.err), ran
    files = [path for top in (place.home, place.runtime) for path in top.rglob("*") if path.is_file()]
    assert sum(path.name == "journal.jsonl" for path in files) >= 1
    assert [path for path in files if tells(path.read_bytes())] == []


def test_a_redirect_takes_nothing_along(place: Place) -> None:
    """Neither a request nor a look at models or metrics follows it, so nobody else is told anything."""
    with scripted() as elsewhere:

        def moved(to: Answering, asked: Asked | None = None) -> None:
            to.send_response(307)
            to.send_header("location", elsewhere.url + to.path)
            to.send_header("content-length", "0")
            to.end_headers()

        met: list[str] = []
        elsewhere.listing = lambda to: met.append(to.path)
        with scripted(moved, listing=moved) as server:
            ran = place.measure(server.url, *GIVEN, "--model", "m", "--levels", "1", "--warmup", "none", env=SECRET)
        assert ran.code == 3 and "http_307" in ran.err, ran
        assert (elsewhere.asked, met) == ([], [])


def test_metrics_of_another_host_are_asked_for_without_a_key(place: Place) -> None:
    """And those of the endpoint's own with it."""

    def asked_with(host: str) -> set[str]:
        met: list[str] = []

        def page(to: Answering) -> None:
            met.append(f"{to.headers['authorization']} {to.headers['x-team']}")
            to.whole(200, b"vllm:num_requests_running 1\n", "text/plain")

        with scripted(words(3, gap_s=0.05)) as server, scripted(listing=page) as metrics:
            url = f"http://{host}:{metrics.server_address[1]}/metrics"
            ran = place.measure(
                server.url, *GIVEN, "--metrics-url", url, "--levels", "2", "--requests", "8", "--warmup", "none",
                env=SECRET,
            )  # fmt: skip
        assert ran.code == 0 and met, ran
        return set(met)

    assert asked_with("localhost") == {"None None"}
    assert asked_with("127.0.0.1") == {f"Bearer {KEY} {VALUE}"}


# processes and files


def test_children_get_a_closed_down_environment(place: Place) -> None:
    allowed = {
        "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE",
        "SSL_CERT_DIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
    }  # fmt: skip
    endless = ("--levels", "2", "--requests", "100000", "--max-tokens", "20")
    face = place.begin("sim:moe-tp1?speed=20", *GIVEN, *endless, env=SECRET)
    parts = ("swarmtui.session_process", "swarmtui.loadgen.worker", "swarmtui.sim")
    until(lambda: all(place.processes(part) for part in parts), "all processes")
    for part in parts:
        (found,) = place.processes(part)
        names = (Path("/proc") / str(found.pid) / "environ").read_bytes()
        assert {name.partition("=")[0] for name in names.decode().split("\0") if name} <= allowed
        assert not tells(names) and not tells(found.words)
    listening = until(lambda: _listening(place), "the simulator listens")
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    face.process.terminate()
    face.wait()


def _listening(place: Place) -> list[Any]:
    return [
        connection
        for process in place.processes()
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_files_of_the_working_directory_are_not_taken_for_modules(place: Place) -> None:
    """As the installed command starts: its own path is its own, and its children's must be so too."""
    carried_out = place.home / "carried-out"
    for name in ("h11", "httptools", "msgspec", "heapq", "swarmtui"):
        (place.home / f"{name}.py").write_text(f"open({str(carried_out)!r}, 'w')\n")
    ran = place.measure(
        "sim:moe-tp1?speed=50", "--levels", "1", "--requests", "2", "--max-tokens", "8", env={"PYTHONSAFEPATH": "1"}
    )
    assert ran.code == 0, ran
    assert not carried_out.exists()


def test_sessions_and_sockets_are_for_their_owner_alone(place: Place) -> None:
    with scripted(words(3, gap_s=0.02)) as server:
        face = place.begin(server.url, "--levels", "2", "--requests", "40", "--no-gpu")
        (sock,) = until(lambda: list((place.runtime / "swarmtui").glob("*.sock")), "a socket")
        assert stat.S_IMODE(sock.stat().st_mode) == 0o600
        assert stat.S_IMODE(sock.parent.stat().st_mode) == 0o700
        assert face.wait().code == 0
    assert stat.S_IMODE(place.session.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.session.iterdir()} == {0o600}


def test_a_socket_directory_that_others_can_enter_is_not_used(place: Place) -> None:
    (place.runtime / "swarmtui").mkdir(mode=0o755)
    told = place.measure("127.0.0.1:9").refused(2)
    assert "must belong to you alone (mode 0700)" in told


# what is read is never carried out

CODE = "__import__('os').system('touch carried-out')"


@pytest.mark.parametrize("option", ["--fail-if", "--slo", "--levels", "--requests", "--workload", "--endpoint"])
def test_words_of_the_command_line_are_not_carried_out(place: Place, option: str) -> None:
    endpoint = () if option == "--endpoint" else ("--endpoint", "127.0.0.1:9")
    for code in (CODE, "$(touch carried-out)"):
        assert place.run("run", *endpoint, f"{option}={code}").code in (2, 3)
    assert not (place.home / "carried-out").exists()


def test_a_workload_is_not_carried_out(place: Place) -> None:
    prompt = f"{CODE} {{0}} $(id)"
    text = f'name = "x"\nkind = "prompts"\nsystem = "${{HOME}} %(x)s"\n[[prompts]]\ntext = "{prompt}"\n'
    (place.home / "workload.toml").write_text(text)
    with scripted() as server:
        ran = place.measure(
            server.url, "--workload", str(place.home / "workload.toml"), "--levels", "1", "--requests", "1",
            "--warmup", "none", "--no-gpu",
        )  # fmt: skip
    assert ran.code == 0, ran
    said = " ".join(message["content"] for message in server.asked[-1].body["messages"])
    assert prompt in said and "${HOME} %(x)s" in said
    assert not (place.home / "carried-out").exists()


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


def _wrong(node: ast.AST) -> bool:
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


def test_no_code_of_ours_unpickles_evaluates_or_asks_a_shell() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', '?')}"
        for path in sorted((ROOT / "swarmtui").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if _wrong(node)
    ]
    assert found == []
    assert _wrong(ast.parse("eval('1')").body[0].value)  # type: ignore[attr-defined]


# what others wrote, shown to a browser

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


def test_a_report_for_a_browser_escapes_everything(tmp_path: Path) -> None:
    entries = whole(
        label=HOSTILE,
        note=HOSTILE,
        workload=HOSTILE,
        server_flags=HOSTILE,
        tags={HOSTILE: HOSTILE},
        endpoints=(Endpoint(url=f"http://{HOSTILE}", model=HOSTILE, engine=HOSTILE),),
    )
    failed = record(999, c=2, stretch=2, error=HOSTILE, error_detail=HOSTILE, type=HOSTILE, finish_reason=HOSTILE)
    event = Event(t_ns=entries[1].t_ns, name=HOSTILE, detail=HOSTILE)  # type: ignore[union-attr]
    write(tmp_path / "20261115-014455-3f9a", [*entries[:-1], Request(record=failed), event, entries[-1]])
    page = _Page()
    page.feed(export([load(tmp_path, "last")], "html").decode())
    assert page.bad == []
    assert "<script>alert(1)</script>" in "".join(page.text)


# who comes to the socket

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_else_is_shown_out_even_where_the_modes_let_them_in(place: Place) -> None:
    """As nobody, past directories that were opened for all: the user id of who connects is asked for as well."""
    with scripted(words(3, gap_s=0.02)) as server:
        face = place.begin(server.url, "--levels", "2", "--requests", "100000", "--no-gpu")
        (path,) = until(lambda: list((place.runtime / "swarmtui").glob("*.sock")), "a socket")
        until(lambda: server.asked, "the first request")
        stop = pack(Stop(grace_s=0.0)) + pack(Subscribe(hz=20.0))
        assert _told_to(NOBODY, path, stop) == "PermissionError"
        for opened in (place.runtime, path.parent, path):
            opened.chmod(0o777)
        assert _told_to(NOBODY, path, stop) == "0 bytes"
        asked = len(server.asked)
        until(lambda: len(server.asked) > asked + 20, "it goes on as if nobody had come")
        assert int(_told_to(os.getuid(), path, stop).split()[0]) > 0
        assert face.wait().code == 4


def _told_to(uid: int, path: Path, words: bytes) -> str:
    """How many bytes a process of that user gets in answer to these words, or why it gets none."""
    code = (
        "import os, socket, sys\n"
        "os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))\n"
        "guest, got = socket.socket(socket.AF_UNIX), 0\n"
        "try:\n"
        "    guest.connect(sys.argv[2])\n"
        "    guest.sendall(bytes.fromhex(sys.argv[3]))\n"
        "    while part := guest.recv(1 << 16):\n"
        "        got += len(part)\n"
        "except PermissionError as error:\n"
        "    sys.exit(print(type(error).__name__))\n"
        "except ConnectionError:\n"
        "    pass\n"
        "print(got, 'bytes')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(uid), str(path), words.hex()],
        capture_output=True, text=True, timeout=30, check=True, cwd="/",
    )  # fmt: skip
    return ran.stdout.strip()


NESTED = b"\x82\xa4type\xa9Subscribe\xa1x" + b"\x91" * 100_000


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", len(NESTED).to_bytes(4, "big") + NESTED, b"\xff" * 64, b""]
)
def test_a_guest_that_speaks_another_language_is_shown_out(place: Place, said: bytes) -> None:
    with scripted(words(3, gap_s=0.02)) as server:
        face = place.begin(server.url, "--levels", "2", "--requests", "30", "--no-gpu")
        (path,) = until(lambda: list((place.runtime / "swarmtui").glob("*.sock")), "a socket")
        until(lambda: server.asked, "the first request")
        with socket.socket(socket.AF_UNIX) as guest:
            guest.connect(str(path))
            guest.sendall(said)
            guest.shutdown(socket.SHUT_WR)
            guest.settimeout(5)
            while guest.recv(1 << 16):
                pass
        assert face.wait().code == 0
    assert place.shown()["levels"][0]["ok"] == 30
