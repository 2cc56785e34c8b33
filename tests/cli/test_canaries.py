"""`swarmtui run --canaries` on a server whose answers get worse from the second level on."""

from __future__ import annotations

import pytest

from swarmtui.processes.spawn import start_simulator
from swarmtui.prompts.canaries import COUNT
from swarmtui.sessions.journal import read_journal
from tests.cli.corrupting_proxy import CorruptingProxy
from tests.cli.programs import Sandbox
from tests.loadgen.raw_server import DONE, ROLE, RawCall, RawServer, delta, usage

ANSWERS = {
    "17 + 26": "43", "capital of France": "Paris", "9 times 8": "72", "closest to the Sun": "Mercury",
    "amber": "amber-lion-42", "days does a week": "seven", "formula of water": "H2O", "2, 4, 6, 8": "10",
    "after June": "July", "100 minus 37": "63", "opposite of hot": "cold", "hexagon": "6", "blue and yellow": "green",
    "91 or 19": "91", "Hund": "dog", "largest ocean": "Pacific", "half of 84": "42", "capital of Japan": "Tokyo",
    "north": "north/7/willow", "spider": "8",
}  # fmt: skip


class Forgetful(RawServer):
    """Answers the first `right` requests correctly, and the others like a model that knows nothing."""

    def __init__(self, right: int) -> None:
        super().__init__(self._respond)
        self._right = right

    def _respond(self, call: RawCall) -> None:
        if call.request_line.startswith("GET"):
            call.reply("200 OK", '{"data":[{"id":"m"}]}')
            return
        if "/tokenize" in call.request_line:
            call.reply("404 Not Found", "{}")
            return
        right = next((answer for part, answer in ANSWERS.items() if part in call.prompt), "words of an answer")
        asked = sum(earlier.request_line.startswith("POST") for earlier in tuple(self.calls))
        text = right if asked <= self._right else "I do not know."
        call.stream(ROLE, *(delta(content=f"{word} ") for word in text.split()), delta("stop"), usage(4), DONE)


# The first level takes 96 requests, with warm-up, reference, pre-roll and filler.
@pytest.mark.parametrize("knows", [True, False])
def test_worse_answers_are_an_alarm(sandbox: Sandbox, knows: bool) -> None:
    with Forgetful(100 if knows else 0) as server:
        ran = sandbox.run_benchmark(
            server.url, "--levels", "1,4", "--requests", "60", "--canaries", "20%", "--warmup", "1", "--no-gpu"
        )
    assert ran.code == 0, ran
    records = read_journal(sandbox.session).records
    alone = [record for record in records if record.stage == 2]
    assert len(alone) == COUNT and {record.phase for record in alone} == {"canary"}
    one, four = sandbox.show_session()["levels"]
    assert (one["n"], four["n"]) == (60, 60)
    # A canary that is still in flight when the last measured answer arrives ends with the level.
    assert one["canaries"]["n"] == 12 and 9 <= four["canaries"]["n"] <= 12
    text = " ".join(ran.out.split())
    if knows:
        assert one["canaries"]["passed"] == 12 and four["canaries"]["passed"] <= 4
        assert "✗ C=4: answers got worse: 100 % →" in text
        assert "C=1: 12 of 12 canaries pass (76 % to 100 %), alone 20 of 20; 12 of 12 answers are those of C=1" in text
    else:
        assert "C=1,4: canaries are not applicable: alone, the model answers 0 of 20 questions" in text
        assert "got worse" not in text


def run_through_proxy(
    sandbox: Sandbox, knows: RawServer, share: float, seed: int, requests: int, canaries: str
) -> tuple[CorruptingProxy, str]:
    """Run C=1 and C=8 behind a proxy that corrupts a share of the answers of C=8; return what it prints."""
    simulator = start_simulator("moe-tp1?speed=50&output.median=120&output.cv=0.3&slots=8")
    try:
        ports = [int(str(url).rpartition(":")[2]) for url in (simulator.url(), knows.url)]
        with CorruptingProxy(ports[0], ports[1], share, seed) as proxy:
            ran = sandbox.run_benchmark(
                f"http://127.0.0.1:{proxy.port}", "--levels", "1,8", "--requests", str(requests),
                "--canaries", canaries, "--warmup", "1", "--no-gpu", "--seed", str(seed), "--quiet",
            )  # fmt: skip
    finally:
        simulator.end()
    assert ran.code == 0, ran
    return proxy, " ".join(ran.out.split())


@pytest.mark.parametrize(("share", "alarm"), [(0.2, True), (0.0, False)])
def test_corrupting_proxy_is_found(sandbox: Sandbox, share: float, alarm: bool) -> None:
    with Forgetful(10**9) as knows:
        proxy, text = run_through_proxy(sandbox, knows, share, seed=1, requests=80, canaries="10%")
    assert (proxy.corrupted > 0) is alarm
    assert ("answers got worse" in text) is alarm, text
