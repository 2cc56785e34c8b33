"""Check the endpoints before any load: are they up, which model do they serve, and how do they count tokens.

All functions that send requests block, and are called in a thread.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from swarmtui.analysis.compare.differences import describe_server_changes, server_changes
from swarmtui.engines.registry import GENERIC, engine_from_models, engine_named
from swarmtui.http_client import HttpClient, HttpReply, RequestFailed
from swarmtui.loadgen.dialects import load_dialect, names_with_tools
from swarmtui.model.base import BadInput
from swarmtui.model.endpoint import (
    AUTO,
    PATHS,
    SIMULATOR_PREFIX,
    Address,
    Dialect,
    Endpoint,
    dialect_from_url,
    parse_address,
)
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.model.workload import Message, Task, Tool, Trace, Workload
from swarmtui.processes.spawn import ServerProcess, start_simulator
from swarmtui.prompts.filler_text import (
    Calibration,
    calibration_texts,
    extend_calibration,
    fit_calibration,
    longest_prompt,
    needs_calibration,
)
from swarmtui.prompts.generator import TaskGenerator, tools_of
from swarmtui.prompts.library import WorkloadFile, trace_paths
from swarmtui.prompts.sampling import PROBE_NONCE_START, nonce
from swarmtui.prompts.traces.reader import read_sessions
from swarmtui.prompts.traces.window import Window, describe_too_long
from swarmtui.telemetry.discovery import Listener, identify, listeners_at
from swarmtui.telemetry.fingerprint import fingerprint
from swarmtui.telemetry.metrics import metrics_url

_TIMEOUT_S = 10.0
_FINGERPRINT_TIMEOUT_S = 2.0
_METRICS_TIMEOUT_S = 1.0
_CALIBRATION_TIMEOUT_S = 120.0
# Text that is counted by one-token requests has at most about this many tokens; the server has to read it.
_MAX_BY_USAGE = 8000
# A server that has just started does not report everything at once.
_IDENTIFY_ATTEMPTS = 2
_IDENTIFY_PAUSE_S = 1.0
_MAX_NAMED = 10
# Not found, method not allowed, not implemented.
_UNKNOWN_PATH = (404, 405, 501)
# What parsing a token count may raise: no JSON, a missing key, a wrong type, infinity.
_COUNT_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


# The URL of a metrics page, when it was read, and its text.
MetricsPage = tuple[str, int, str]


class PreflightFindings:
    """Holds what preflight found out before the load, when requests disturb nothing.

    `window` is set if requests of a trace do not fit into it, and `too_long` says how many.
    """

    def __init__(self) -> None:
        self.metrics_pages: list[MetricsPage] = []
        self.listeners: dict[str, Listener] = {}
        self.window: Window | None = None
        self.too_long = ""


class EndpointUnusable(Exception):
    """The endpoint cannot be used; the message says what failed and what to do."""


class EndpointInspector:
    """Sends single requests to one endpoint."""

    def __init__(self, address: Address, client: HttpClient) -> None:
        self._address, self._client = address, client

    def serves(self, dialect: Dialect) -> bool:
        """Return whether the server knows the path of an API, by an empty request: it fails before any work is done."""
        try:
            url = self._address.root + PATHS[dialect]
            status = self._client.request("POST", url, _TIMEOUT_S, json={}).status
        except RequestFailed as error:
            raise EndpointUnusable(self._explain(error, PATHS[dialect])) from None
        return status not in _UNKNOWN_PATH

    def inspect(self, dialect: Dialect, model: str | None) -> tuple[str, str]:
        """Return the model to use, which may be given, and the name of the engine."""
        path = load_dialect(dialect).models_path
        response = self._get(path)
        rows = _model_rows(response)
        names = None if rows is None else [str(row.get("id") or row.get("name") or "") for row in rows]
        chosen = model if model is not None else self._first_model(names, path, response)
        # A list of one page is judged; with several, the others may have it.
        if names and not response.raw_json().get("has_more") and not _is_listed(chosen, names):
            listed = ", ".join(names[:_MAX_NAMED]) + (" …" if len(names) > _MAX_NAMED else "")
            raise BadInput(f"{self._address.root} has no model {chosen!r}; it lists {listed}", key="--model")
        return chosen, self._engine(rows or [], response.server)

    def _engine(self, rows: list[dict[str, Any]], server_header: str) -> str:
        """Return the engine's name, empty if unknown; send more requests only if the model list is not enough."""
        if engine := engine_from_models(rows, server_header):
            return engine.name
        found = fingerprint(self._address.root, client=self._client, timeout_s=_FINGERPRINT_TIMEOUT_S)
        return "" if found is None or found.engine == GENERIC.name else found.engine

    def responds(self, dialect: Dialect) -> bool:
        """Return whether the server is ready; one that is still loading its model answers with a 5xx."""
        try:
            return self._client.get(self._address.root + load_dialect(dialect).models_path, _TIMEOUT_S).status < 500
        except RequestFailed:
            return False

    def _get(self, path: str) -> HttpReply:
        root = self._address.root
        try:
            response = self._client.get(root + path, _TIMEOUT_S)
        except RequestFailed as error:
            raise EndpointUnusable(self._explain(error, path)) from None
        if response.status in (401, 403):
            raise EndpointUnusable(
                f"{root}{path}: HTTP {response.status}, not authorised; "
                "name the variable that holds the key with --api-key-env"
            )
        return response

    def _explain(self, error: RequestFailed, path: str) -> str:
        root = self._address.root
        match error.kind:
            case "connect_timeout":
                return f"{root}: {error}; is the host right?"
            case "connect":
                return f"{root}: cannot connect ({error}); is the server up, are host and port right?"
            case "tls":
                return f"{root}: {error}"
            case "protocol":
                https = " Or is it https://?" if self._address.scheme == "http" else ""
                return f"{root}{path}: {error}; does it speak HTTP?{https}"
        return f"{root}{path}: {error}"

    def _first_model(self, models: list[str] | None, path: str, response: HttpReply) -> str:
        where = f"{self._address.root}{path}"
        if models is None:
            kind, base = response.content_type or "no content type", self._address.base
            hint = f"is the path {base} right? Otherwise choose" if base and response.status == 404 else "choose"
            raise EndpointUnusable(
                f"{where}: HTTP {response.status}, {kind}, not a model list; {hint} a model with --model"
            )
        if not any(models):
            raise EndpointUnusable(f"{where}: the server lists no model; choose one with --model")
        return next(filter(None, models))

    def calibrate(self, dialect: Dialect, model: str, workload: Workload, seed: int) -> Calibration:
        """Count the tokens of sample texts with the system message and tools of a workload, then of more text.

        The counts are those of `/tokenize`, or else the usage of one-token requests. More text is counted by itself, or
        as the samples if the server cannot do that.
        """
        api, tools = load_dialect(dialect), tools_of(workload)
        system = (Message(role="system", content=workload.system),) if workload.system else ()
        salt, longest = str(time.time_ns()), longest_prompt(workload)

        def prompt(text: str) -> tuple[Message, ...]:
            return (*system, Message(role="user", content=text))

        def tokenized(text: str) -> int | None:
            return self._tokenize(model, _to_builtins(api.tokenize_fields(prompt(text), tools)))

        def used(text: str) -> int:
            return self._prompt_usage(dialect, model, prompt(text), tools)

        def count_in_prompt(text: str) -> float | None:
            marked = nonce(PROBE_NONCE_START, seed, salt) + text
            try:
                count = tokenized(marked) if found.by == "tokenize" else used(marked)
            except EndpointUnusable:  # such as a limit of the rate
                return None
            return None if count is None else count - found.overhead

        texts = calibration_texts(seed, salt)
        counts = [count for count in takewhile(bool, map(tokenized, texts)) if count]
        if len(counts) == len(texts):
            found = fit_calibration(texts, counts, "tokenize")
        else:
            found = fit_calibration(texts, [*map(used, texts)], "usage")
        extended = extend_calibration(found, partial(self.count_tokens, model), longest)
        if extended is not found:
            return extended
        return extend_calibration(
            found, count_in_prompt, longest if found.by == "tokenize" else min(longest, _MAX_BY_USAGE)
        )

    def count_tokens(self, model: str, text: str) -> int | None:
        """Count the tokens of a text, or return None if the server cannot; servers differ in path and field."""
        count = self._tokenize(model, {"prompt": text, "content": text, "add_special_tokens": False})
        return self._post_count("/extras/tokenize/count", {"input": text}) if count is None else count

    def _tokenize(self, model: str, prompt: dict[str, Any]) -> int | None:
        return self._post_count("/tokenize", {"model": model} | prompt)

    def _post_count(self, path: str, body: dict[str, Any]) -> int | None:
        try:
            response = self._client.request("POST", self._address.root + path, _TIMEOUT_S, json=body)
            found = response.json() if response.status == 200 else None
        except (RequestFailed, ValueError):
            return None
        if not isinstance(found, dict):
            return None
        count = found.get("count", len(tokens) if isinstance(tokens := found.get("tokens"), list) else None)
        # llama.cpp returns an empty list for a request body that it does not understand.
        return count if isinstance(count, int) and count > 0 else None

    def _prompt_usage(self, dialect: Dialect, model: str, prompt: tuple[Message, ...], tools: tuple[Tool, ...]) -> int:
        root, path, api = self._address.root, PATHS[dialect], load_dialect(dialect)
        limit = api.sampling_fields(Task(id=0, messages=(), max_tokens=1))
        try:
            fields = api.prompt_fields(prompt) | api.tools(tools, "none") | limit
            body = {"model": model, "stream": False} | _to_builtins(fields)
            found = self._client.request("POST", root + path, _CALIBRATION_TIMEOUT_S, json=body).json()
            return api.prompt_tokens(found)
        except (RequestFailed, *_COUNT_ERRORS) as error:
            raise EndpointUnusable(
                f"{root}{path}: prompt lengths cannot be calibrated: no /tokenize, and a one-token request "
                f"reports no usage ({type(error).__name__}); use a workload with written prompts, such as coding"
            ) from None


def _to_builtins(fields: dict[str, Any]) -> dict[str, Any]:
    """Decode what was encoded before, so that another encoder can write it."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(fields))
    return decoded


def _model_rows(response: HttpReply) -> list[dict[str, Any]] | None:
    """Return the entries of a model list as they are, or None if the response is not a model list."""
    try:
        found = response.raw_json() if response.status == 200 else None
    except ValueError:
        return None
    rows = found.get("data", found.get("models")) if isinstance(found, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


def _is_listed(model: str, names: Sequence[str]) -> bool:
    """Whether a server that lists these models has one; `latest` may be left out, and stand for a date.

    A gateway may list patterns.
    """
    base = re.sub("[-:]latest$", "", model)
    return any(
        model == name or name == f"{model}:latest" or "*" in name or (base != model and name.startswith(base))
        for name in names
    )


def http_client(request: RunRequest, endpoints: Iterable[str], dialect: Dialect = "chat") -> HttpClient:
    auth = load_dialect(dialect).auth_headers(request.secrets.api_key)
    return HttpClient(endpoints, request.secrets, auth=auth, ca_file=request.ca_file, insecure=request.insecure)


@contextmanager
def open_inspector(request: RunRequest, url: str, dialect: Dialect) -> Iterator[EndpointInspector]:
    with http_client(request, (url,), dialect) as client:
        yield EndpointInspector(parse_address(url), client)


def fetch_metrics(client: HttpClient, url: str) -> MetricsPage | None:
    """Read a metrics page before our first request, to see whether the server is idle."""
    try:
        response = client.get(url, _METRICS_TIMEOUT_S)
    except RequestFailed:
        return None
    return (url, time.perf_counter_ns(), response.text) if response.status == 200 else None


def inspect_endpoints(
    request: RunRequest, workload: WorkloadFile, simulators: list[ServerProcess], findings: PreflightFindings
) -> tuple[tuple[Endpoint, ...], Calibration | None]:
    """Check all endpoints while the workers start; adds to `simulators` and `findings`."""
    endpoints: list[Endpoint] = []
    calibration = None
    for address in request.endpoints:
        url, embedded = address, address.startswith(SIMULATOR_PREFIX)
        if embedded:
            simulators.append(start_simulator(address.removeprefix(SIMULATOR_PREFIX)))
            if not (url := simulators[-1].url()):
                raise EndpointUnusable(f"{address}: the simulator did not start; see `swarmtui sim --list`")
        dialect = _choose_dialect(request, url, with_tools=bool(workload.workload.tools))
        with http_client(request, (url,), dialect) as client:
            inspector = EndpointInspector(parse_address(url), client)
            model, engine = inspector.inspect(dialect, request.model)
            if calibration is None and needs_calibration(workload.workload):
                calibration = inspector.calibrate(dialect, model, workload.workload, request.plan.seed)
            own_metrics = metrics_url(parse_address(url).root, engine) if engine else None
            if own_metrics and not request.metrics_urls and (page := fetch_metrics(client, own_metrics)):
                findings.metrics_pages.append(page)
        endpoints.append(
            Endpoint(
                url=url,
                model=model,
                dialect=dialect,
                engine=engine,
                ca_file=request.ca_file,
                insecure=request.insecure,
                header_names=tuple(sorted(request.secrets.headers)),
                embedded=embedded,
            )
        )
    if isinstance(workload.workload, Trace):
        check_window(request, workload, [parse_address(endpoint.url).root for endpoint in endpoints], findings)
    findings.listeners = listeners_at(parse_address(endpoint.url).root for endpoint in endpoints)
    with http_client(request, [endpoint.url for endpoint in endpoints]) as client:
        named = [fetch_metrics(client, url) for url in request.metrics_urls]
    findings.metrics_pages += [page for page in named if page is not None]
    return tuple(_with_engine_of_process(endpoint, findings) for endpoint in endpoints), calibration


def check_window(
    request: RunRequest, workload: WorkloadFile, roots: Sequence[str], findings: PreflightFindings
) -> None:
    """Find the requests of a trace that are longer than a server's context; raise BadInput unless the plan allows it.

    Servers that do not report their context are not judged.
    """
    with http_client(request, roots) as client:
        servers = [fingerprint(root, client=client, timeout_s=_FINGERPRINT_TIMEOUT_S) for root in roots]
    contexts = [server.context for server in servers if server is not None and server.context is not None]
    if not contexts:
        return
    chosen, window = request.plan.too_long, min(contexts)
    sentence = describe_too_long(read_sessions(trace_paths(workload)), window, chosen)
    if sentence and chosen is None:
        raise BadInput(sentence, key="workload")
    if sentence and chosen is not None:
        findings.window, findings.too_long = Window(window, chosen), sentence


def _choose_dialect(request: RunRequest, url: str, *, with_tools: bool) -> Dialect:
    """Return the API that the user asks for, or the one in the URL; `auto` is the first that the server knows."""
    if request.api != AUTO:
        return request.api or dialect_from_url(url)
    usable = names_with_tools() if with_tools else tuple(PATHS)
    for dialect in usable:
        with open_inspector(request, url, dialect) as inspector:
            if inspector.serves(dialect):
                return dialect
    root = parse_address(url).root
    raise EndpointUnusable(
        f"{root}: it knows none of {', '.join(PATHS[name] for name in usable)}; is the path of the URL right?"
    )


def _with_engine_of_process(endpoint: Endpoint, findings: PreflightFindings) -> Endpoint:
    """Take the engine from the server's command line if its replies do not show it."""
    listener = findings.listeners.get(parse_address(endpoint.url).root)
    if endpoint.engine or listener is None or listener.engine in (None, GENERIC):
        return endpoint
    return msgspec.structs.replace(endpoint, engine=listener.engine.name)


def all_respond(request: RunRequest, endpoints: tuple[Endpoint, ...]) -> bool:
    for endpoint in endpoints:
        with open_inspector(request, endpoint.url, endpoint.dialect) as inspector:
            if not inspector.responds(endpoint.dialect):
                return False
    return True


def describe_changed_servers(
    request: RunRequest, before: tuple[DiscoveredServer, ...], endpoints: tuple[Endpoint, ...]
) -> str:
    """Describe how restarted servers differ from what they were before; empty if they do not."""
    known = {server.url: server for server in before}
    for attempt in range(_IDENTIFY_ATTEMPTS):
        time.sleep(attempt * _IDENTIFY_PAUSE_S)
        with http_client(request, ()) as client:
            roots = [parse_address(endpoint.url).root for endpoint in endpoints]
            now = [found for root in roots if (found := identify(root, client=client)) is not None]
        pairs = [(known[server.url], server) for server in now if server.url in known]
        changed = [pair for pair in pairs if server_changes(*pair)]
        if not changed:
            return ""
    return "; ".join(describe_server_changes(*pair) for pair in changed)


def task_generator(
    request: RunRequest,
    workload: WorkloadFile,
    calibration: Calibration | None,
    endpoints: tuple[Endpoint, ...],
    window: Window | None = None,
) -> TaskGenerator:
    plan = request.plan
    # Keep engines from answering out of their prompt cache if the workload promises a cold one.
    uncached: dict[str, object] = {}
    for endpoint in endpoints:
        uncached |= engine_named(endpoint.engine).uncached_request
    return TaskGenerator(
        workload,
        seed=plan.seed,
        calibration=calibration,
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        salt=request.salt,
        cold_extra=uncached or None,
        agent_header=plan.agent_header,
        window=window,
    )
