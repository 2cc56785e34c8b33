"""Keys and header values go to the server, and nowhere else."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.programs import Place, until
from tests.cli.scripted import Answering, Asked, refusing, scripted, words

KEY = "canary-key-5d1f"
VALUE = "canary-value-77aa"
GIVEN = ("--api-key-env", "MY_KEY", "--header", f"X-Team={VALUE}", "--levels", "2", "--requests", "4")


def holds(path: Path) -> bool:
    text = path.read_bytes()
    return KEY.encode() in text or VALUE.encode() in text


def leaks(place: Place) -> list[Path]:
    """Every file that we left, wherever: sessions, sockets' directory, temporary files."""
    found = [path for top in (place.home, place.runtime) for path in top.rglob("*") if path.is_file()]
    assert any(path.name == "journal.jsonl" for path in found)
    return [path for path in found if holds(path)]


def test_the_server_gets_them_and_the_session_does_not(place: Place) -> None:
    with scripted() as server:
        ran = place.measure(server.url, *GIVEN, env={"MY_KEY": KEY})
    assert ran.code == 0, ran
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert {asked.headers["x-team"] for asked in server.asked} == {VALUE}
    assert KEY not in ran.out + ran.err and VALUE not in ran.out + ran.err
    assert leaks(place) == []
    assert place.shown()["session"]["endpoints"][0]["header_names"] == ["X-Team"]


def test_a_server_that_says_the_key_back_is_not_quoted(place: Place) -> None:
    def indiscreet(to: Answering, asked: Asked) -> None:
        refusing(401, f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}'.encode())(to, asked)

    with scripted(indiscreet) as server:
        ran = place.measure(server.url, *GIVEN, env={"MY_KEY": KEY})
    assert ran.code == 3, ran
    assert KEY not in ran.out + ran.err
    assert leaks(place) == []


def test_no_process_carries_them_where_others_can_look(place: Place) -> None:
    """The command line of a process is for all to read, and its environment for all of the same user."""
    with scripted(words(100, gap_s=0.05)) as server:
        face = place.begin(server.url, *GIVEN, env={"MY_KEY": KEY})
        until(lambda: len(server.asked) >= 2, "requests are under way")
        ours = [process for process in place.processes() if process.pid != face.pid]
        assert len(ours) == 2
        for process in ours:
            proc = Path("/proc") / str(process.pid)
            assert not holds(proc / "cmdline") and not holds(proc / "environ")
        assert KEY.encode() not in (Path("/proc") / str(face.pid) / "cmdline").read_bytes()
        face.signal_group(signal.SIGINT)
        until(lambda: "stopping" in face.said(), "the first Ctrl-C was heard")
        face.signal_group(signal.SIGINT)
        face.wait()
