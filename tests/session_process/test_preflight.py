"""Before any load, the API of a server is found, and one with unusable answers is refused with a reason."""

from __future__ import annotations

import json
import threading
import time

import pytest

from swarmtui.http_client import HttpClient
from swarmtui.model.endpoint import PATHS, Dialect, Endpoint, parse_address
from swarmtui.model.plan import Plan
from swarmtui.model.redaction import Secrets
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.prompts.library import find_workload
from swarmtui.session_process import sampler as sampler_module
from swarmtui.session_process.preflight import EndpointInspector, EndpointUnusable, PreflightFindings, inspect_endpoints
from swarmtui.session_process.sampler import Sampler
from tests.loadgen.raw_server import RawCall, RawServer
from tests.telemetry.text_server import serving


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"usage":7}', '{"usage":{"prompt_tokens":null}}', '{"usage":{"prompt_tokens":Infinity}}']
)
def test_server_without_token_counts_cannot_be_calibrated(answer: str) -> None:
    with serving({"/v1/chat/completions": answer}) as server:
        inspector = EndpointInspector(parse_address(server.url), HttpClient())
        with pytest.raises(EndpointUnusable, match="prompt lengths cannot be calibrated"):
            inspector.calibrate("chat", "model", find_workload("random-1k-1k").workload, seed=0)


class CountingServer(RawServer):
    """Counts words, in prompts with five more: messages or plain text by /tokenize, or by the usage of a request."""

    def __init__(self, *, messages: bool = False, text: bool = False, requests: int = 1000) -> None:
        super().__init__(self._respond)
        self._messages, self._text, self._left = messages, text, requests

    def _respond(self, call: RawCall) -> None:
        if call.request_line.split()[1] == PATHS["chat"] and self._left:
            self._left -= 1
            call.reply("200 OK", json.dumps({"usage": {"prompt_tokens": 5 + len(call.prompt.split())}}))
        elif self._messages and "messages" in call.body:
            call.reply("200 OK", json.dumps({"count": 5 + len(call.prompt.split())}))
        elif self._text and "content" in call.body:
            call.reply("200 OK", json.dumps({"tokens": [1] * len(call.body["content"].split())}))
        else:
            call.reply("404 Not Found", "{}")


@pytest.mark.parametrize(
    ("server", "by", "least", "most"),
    [
        (CountingServer(messages=True, text=True), "tokenize", 39_000, 40_000),
        (CountingServer(messages=True), "tokenize", 39_000, 40_000),
        (CountingServer(text=True, requests=19), "usage", 39_000, 40_000),
        (CountingServer(), "usage", 8000, 8300),
        (CountingServer(requests=24), "usage", 290, 300),
        (CountingServer(requests=19), "usage", 200, 250),
    ],
    ids=["both", "messages", "text", "usage", "few requests", "no more requests"],
)
def test_text_of_prompts_is_as_long_as_the_server_counts(
    server: CountingServer, by: str, least: int, most: int
) -> None:
    """A trace has prompts of any length. One-token requests cost more than counts, so they count less."""
    with server:
        inspector = EndpointInspector(parse_address(server.url), HttpClient())
        found = inspector.calibrate("chat", "model", find_workload("agents").workload, seed=0)
    assert (found.by, found.overhead) == (by, 6.0)
    assert least <= found.cycle <= most
    assert all(words == tokens for words, tokens in found.known)


class SeveralApis(RawServer):
    """Lists one model, and knows the paths of some APIs; an empty request to them is refused."""

    def __init__(self, *known: Dialect) -> None:
        super().__init__(self._respond)
        self._paths = {PATHS[dialect] for dialect in known}

    def _respond(self, call: RawCall) -> None:
        method, path, _ = call.request_line.split()
        if method == "GET":
            call.reply("200 OK", '{"data":[{"id":"m","owned_by":"vllm"}],"models":[{"name":"m"}]}')
        elif path in self._paths:
            call.reply("400 Bad Request", '{"error":"no model"}')
        else:
            call.reply("404 Not Found", '{"detail":"Not Found"}')


def inspect(url: str, api: str | None) -> Endpoint:
    request = RunRequest(
        endpoints=(url,), workload="coding", plan=Plan(), session_root="", api=api, secrets=Secrets(api_key="k" * 8)
    )
    (endpoint,), _ = inspect_endpoints(request, find_workload("coding"), [], PreflightFindings())
    return endpoint


@pytest.mark.parametrize(
    ("known", "api", "path", "found"),
    [
        (("chat", "messages"), "auto", "", "chat"),
        (("messages", "ollama"), "auto", "", "messages"),
        (("ollama",), "auto", "", "ollama"),
        (("chat",), "responses", "", "responses"),
        (("chat",), None, "", "chat"),
        (("chat",), None, "/v1/messages", "messages"),
        (("chat", "messages"), "auto", "/v1/messages", "chat"),
    ],
)
def test_api_of_an_endpoint(known: tuple[Dialect, ...], api: str | None, path: str, found: Dialect) -> None:
    with SeveralApis(*known) as server:
        assert inspect(server.url + path, api).dialect == found
    sent = [call for call in server.calls if call.request_line.startswith("POST")]
    assert (len(sent) > 0) == (api == "auto")
    assert all(call.body == {} for call in sent)


def test_server_that_knows_no_api_is_refused() -> None:
    with SeveralApis() as server, pytest.raises(EndpointUnusable, match="knows none of /v1/chat/completions, "):
        inspect(server.url, "auto")


def test_key_goes_where_the_api_wants_it_also_before_the_load() -> None:
    with SeveralApis("messages") as server:
        inspect(server.url, "messages")
    listing = next(call for call in server.calls if "/v1/models" in call.request_line)
    assert (listing.headers["x-api-key"], listing.headers["anthropic-version"]) == ("k" * 8, "2023-06-01")


def test_a_server_that_answers_late_is_identified(monkeypatch: pytest.MonkeyPatch) -> None:
    late = DiscoveredServer(url="http://127.0.0.1:1", flags={"parallel": "4"})
    monkeypatch.setattr(sampler_module, "identify", lambda root, listener, limit, client: late if limit > 2 else None)
    request = RunRequest(endpoints=(late.url,), workload="coding", plan=Plan(), session_root="/nowhere")
    endpoints = (Endpoint(url=late.url, model="tiny"),)
    sampler = Sampler(endpoints, request, simulated=False, findings=PreflightFindings())
    sampler._identify(HttpClient())
    number, found = sampler.servers.get_nowait()
    assert (number, found.flags) == (0, late.flags)
    assert found.shape is None and "does not say which files" in found.shape_problem


@pytest.mark.parametrize(("fails", "last"), [(False, (0.0, 160.0)), (True, (2.0, 100.0))])
def test_last_sample_is_taken_when_the_server_has_ended_cancelled_requests(
    fails: bool, last: tuple[float, float]
) -> None:
    """llama.cpp counts the tokens of a request when it ends, and notices only later that one was cancelled."""
    page = "llamacpp:requests_processing {}\nllamacpp:tokens_predicted_total {}\n"
    # A sample that was being taken at the end uses up a page.
    pages = [page.format(2, 100)] * (4 if fails else 2) + ["" if fails else page.format(0, 160)]
    cancelled = threading.Event()

    def respond(call: RawCall) -> None:
        found = "/metrics" in call.request_line
        if found and cancelled.is_set() and len(pages) > 1:
            del pages[0]
        call.reply("200 OK" if found and pages[0] else "404 Not Found", pages[0])

    with RawServer(respond) as server:
        request = RunRequest(endpoints=(server.url,), workload="coding", plan=Plan(), session_root="/", gpus=False)
        endpoints = (Endpoint(url=server.url, model="tiny", engine="llama.cpp"),)
        sampler = Sampler(endpoints, request, simulated=False, findings=PreflightFindings())
        sampler.start()
        # The server is identified before, which reads its pages too.
        while not sampler.latest().servers:
            time.sleep(0.01)
        cancelled.set()
        sampler.finish(load_ended=True)
    (state,) = sampler.latest().servers
    assert (state.running, state.output_tokens) == last
