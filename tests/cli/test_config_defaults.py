"""Named endpoints and default options of config.toml."""

from __future__ import annotations

import json

from tests.cli.programs import Sandbox
from tests.cli.scripted_server import list_models, respond_with_words, scripted_server

ONE = ("--requests", "2", "--warmup", "none", "--no-gpu")


def configure(sandbox: Sandbox, text: str) -> None:
    folder = sandbox.home / ".config" / "swarmtui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_named_endpoint_with_key_headers_and_flags(sandbox: Sandbox) -> None:
    with scripted_server(listing=lambda to: list_models(to, "theirs", "mine")) as server:
        configure(
            sandbox,
            f'[endpoints.box]\nurl = "{server.url}"\nmodel = "mine"\napi_key_env = "BOX_KEY"\n'
            'headers = {X-Team = "blue"}\nserver_flags = "--max-num-seqs 4"\n',
        )
        ran = sandbox.run_benchmark("box", "--levels", "1", *ONE, env={"BOX_KEY": "canary-key"})
        assert ran.code == 0, ran
        requests = [request for request in server.received if "chat" in request.path]
        assert {request.headers["authorization"] for request in requests} == {"Bearer canary-key"}
        assert {request.headers["x-team"] for request in requests} == {"blue"}
        assert {request.body["model"] for request in requests} == {"mine"}
        session = sandbox.show_session()["session"]
        assert (session["server_flags"], session["endpoints"][0]["url"]) == ("--max-num-seqs 4", server.url)
        error = sandbox.run_benchmark("box", *ONE).error_line(2)
    assert "the variable BOX_KEY is not set" in error
    assert not [path for path in sandbox.sessions.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_command_line_overrides_defaults(sandbox: Sandbox) -> None:
    with scripted_server(respond_with_words()) as server:
        configure(
            sandbox,
            f'[defaults]\nendpoint = "box"\nlevels = [1, 2]\nrequests = 3\ncomplete = true\nwarmup = "none"\n'
            "no_gpu = true\n"
            f'[endpoints.box]\nurl = "{server.url}"\n',
        )
        common = ("--json", "--session-dir", str(sandbox.sessions))
        levels = json.loads(sandbox.run("run", *common).out)["levels"]
        assert [(level["c"], level["n"]) for level in levels] == [(1, 3), (2, 3)]
        (level,) = json.loads(sandbox.run("run", "--levels", "1", "--requests", "2", *common).out)["levels"]
        assert (level["c"], level["n"]) == (1, 2)
        ran = sandbox.run("run", "--duration", "500ms", "--levels", "1", *common)
        assert ran.code == 0, "--duration overrides the default of requests"
        for command in ("run", "quick", "capacity"):
            error = sandbox.run(command, "sim:nope", "--session-dir", str(sandbox.sessions)).error_line(2)
            assert "sim:nope" in error and server.url not in error, "an address replaces that of the file"
        assert sandbox.run("probe", "--quiet", "--session-dir", str(sandbox.sessions)).code == 0
        (found,) = [row for row in sandbox.json("discover", "--json") if row["url"] == server.url]
        assert found["models"] == ["scripted"]


def test_unknown_name_and_key_in_the_file(sandbox: Sandbox) -> None:
    configure(sandbox, '[endpoints.box]\nurl = "http://127.0.0.1:9"\n')
    assert "did you mean box?" in sandbox.run_benchmark("bxo").error_line(2)
    (sandbox.home / ".config" / "swarmtui" / "config.toml").write_text('[endpoints.box]\nurl = "h:1"\napi_key = "k"\n')
    error = sandbox.run_benchmark("box").error_line(2)
    assert "config.toml:3: endpoints.box.api_key: do not store a key in a file" in error and "api_key_env" in error
    assert sandbox.run("sessions", "--session-dir", str(sandbox.sessions)).code == 0
