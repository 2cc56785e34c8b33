"""Endpoints by name and defaults of options, out of config.toml, as the commands use them."""

from __future__ import annotations

import json

from tests.cli.programs import Place
from tests.cli.scripted import scripted, words

ONE = ("--requests", "2", "--warmup", "none", "--no-gpu")


def configure(place: Place, text: str) -> None:
    folder = place.home / ".config" / "swarmtui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_an_endpoint_by_its_name_with_its_key_headers_and_flags(place: Place) -> None:
    with scripted(words()) as server:
        configure(
            place,
            f'[endpoints.box]\nurl = "{server.url}"\nmodel = "mine"\napi_key_env = "BOX_KEY"\n'
            'headers = {X-Team = "blue"}\nserver_flags = "--max-num-seqs 4"\n',
        )
        ran = place.measure("box", "--levels", "1", *ONE, env={"BOX_KEY": "canary-key"})
        assert ran.code == 0, ran
        asked = [asked for asked in server.asked if "chat" in asked.path]
        assert {asked.headers["authorization"] for asked in asked} == {"Bearer canary-key"}
        assert {asked.headers["x-team"] for asked in asked} == {"blue"}
        assert {asked.body["model"] for asked in asked} == {"mine"}
        session = place.shown()["session"]
        assert (session["server_flags"], session["endpoints"][0]["url"]) == ("--max-num-seqs 4", server.url)
        told = place.measure("box", *ONE).refused(2)
    assert "api_key_env BOX_KEY: this variable is not set" in told
    assert not [path for path in place.sessions.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_defaults_give_way_to_what_is_said(place: Place) -> None:
    with scripted(words()) as server:
        configure(
            place,
            f'[defaults]\nendpoint = "box"\nlevels = [1, 2]\nrequests = 3\nwarmup = "none"\nno_gpu = true\n'
            f'[endpoints.box]\nurl = "{server.url}"\n',
        )
        kept = ("--json", "--session-dir", str(place.sessions))
        levels = json.loads(place.run("run", *kept).out)["levels"]
        assert [(level["c"], level["n"]) for level in levels] == [(1, 3), (2, 3)]
        (level,) = json.loads(place.run("run", "--levels", "1", "--requests", "2", *kept).out)["levels"]
        assert (level["c"], level["n"]) == (1, 2)
        ran = place.run("run", "--duration", "200ms", "--levels", "1", *kept)
        assert ran.code == 0, "a default for requests is no contradiction"
        assert place.run("probe", "--quiet", "--session-dir", str(place.sessions)).code == 0
        (found,) = [row for row in place.json("discover", "--json") if row["url"] == server.url]
        assert found["models"] == ["scripted"]


def test_a_name_that_nobody_has_and_a_key_in_the_file(place: Place) -> None:
    configure(place, '[endpoints.box]\nurl = "http://127.0.0.1:9"\n')
    assert "did you mean box?" in place.measure("bxo").refused(2)
    (place.home / ".config" / "swarmtui" / "config.toml").write_text('[endpoints.box]\nurl = "h:1"\napi_key = "k"\n')
    told = place.measure("box").refused(2)
    assert "config.toml:3: endpoints.box.api_key: a key does not belong in a file" in told and "api_key_env" in told
    assert place.run("sessions", "--session-dir", str(place.sessions)).code == 0
