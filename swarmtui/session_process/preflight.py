"""Before any load: is the endpoint there, which model does it serve, how does it count tokens."""

from __future__ import annotations

import time
from typing import Any

import httpx2

from swarmtui.model.endpoint import PATHS, Address, Dialect, Secrets
from swarmtui.model.schema import Stored
from swarmtui.prompts.calibrate import Calibration, fit, probe_texts

_TIMEOUT_S = 10.0
_CALIBRATION_TIMEOUT_S = 120.0
_MOST_BYTES = 16 << 20

# What reading a number of tokens from an answer may end with: no JSON, nothing of that name, infinity …
_NO_COUNT = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class Unusable(Exception):
    """The endpoint cannot be used: what happened, where, what to do."""


class Server(Stored, frozen=True, kw_only=True):
    """What an endpoint says of itself."""

    model: str
    engine: str


class Visit:
    """Plain requests to one endpoint. Proxy variables of the environment are not used: a proxy is not the server."""

    def __init__(self, address: Address, secrets: Secrets, verify: str | bool) -> None:
        self._address = address
        headers = {"Authorization": f"Bearer {secrets.api_key}"} if secrets.api_key else {}
        # Made only where it is needed: certificates take longer to load than everything else here.
        context: Any = verify if address.scheme == "https" else False
        if isinstance(context, str):
            import ssl

            context = ssl.create_default_context(cafile=context)
        self._client = httpx2.Client(
            headers=headers | secrets.headers, verify=context, trust_env=False, timeout=_TIMEOUT_S
        )

    def close(self) -> None:
        self._client.close()

    def look(self, dialect: Dialect, wanted: str | None) -> Server:
        path = "/api/tags" if dialect == "ollama" else "/v1/models"
        answer = self._get(path)
        models, owner = _models(answer)
        return Server(model=self._choose(models, wanted, path, answer), engine=_engine(answer, owner))

    def answers(self, dialect: Dialect) -> bool:
        """Whether it is there and ready: one that still loads its model says so with a 5xx."""
        path = "/api/tags" if dialect == "ollama" else "/v1/models"
        try:
            return self._ask("GET", self._address.root + path).status_code < 500
        except httpx2.HTTPError:
            return False

    def glance(self, url: str) -> tuple[str, int, str] | None:
        """A metrics page as it was before our first request: was the server idle, who else is on it."""
        try:
            answer = self._ask("GET", url, 1.0)
        except httpx2.HTTPError:
            return None
        return (url, time.perf_counter_ns(), answer.text) if answer.status_code == 200 else None

    def _ask(self, method: str, url: str, timeout_s: float = _TIMEOUT_S, **given: Any) -> httpx2.Response:
        """Reads no more than such a page can hold, and no longer than the limit: it may never end."""
        give_up, body = time.monotonic() + timeout_s, bytearray()
        with self._client.stream(method, url, timeout=timeout_s, **given) as answer:
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MOST_BYTES or time.monotonic() > give_up:
                    raise httpx2.ReadTimeout("an answer without an end")
            headers = {name: answer.headers[name] for name in ("content-type", "server") if name in answer.headers}
            return httpx2.Response(answer.status_code, headers=headers, content=bytes(body))

    def _get(self, path: str) -> httpx2.Response:
        root = self._address.root
        try:
            answer = self._ask("GET", root + path)
        except httpx2.ConnectTimeout:
            raise Unusable(f"{root}: no connection within {_TIMEOUT_S:g} s; is the host right?") from None
        except httpx2.ConnectError as error:
            from swarmtui.model.tls_errors import tls_problem

            if problem := tls_problem(error):
                raise Unusable(f"{root}: {problem}") from None
            raise Unusable(f"{root}: cannot connect ({error}); is the server up, are host and port right?") from None
        except httpx2.TimeoutException:
            raise Unusable(f"{root}{path}: no answer within {_TIMEOUT_S:g} s") from None
        except httpx2.HTTPError as error:
            raise Unusable(f"{root}{path}: {error or type(error).__name__}; {self._doubt}") from None
        if answer.status_code in (401, 403):
            raise Unusable(
                f"{root}{path}: HTTP {answer.status_code}, not authorised; "
                "name the variable that holds the key with --api-key-env"
            )
        return answer

    @property
    def _doubt(self) -> str:
        return "does it speak HTTP?" + (" Or is it https://?" if self._address.scheme == "http" else "")

    def _choose(self, models: list[str] | None, wanted: str | None, path: str, answer: httpx2.Response) -> str:
        where = f"{self._address.root}{path}"
        if wanted is not None:
            return wanted
        if models is None:
            kind = answer.headers.get("content-type", "no content type")
            raise Unusable(f"{where}: HTTP {answer.status_code}, {kind}, not a model list; name one with --model")
        if not models:
            raise Unusable(f"{where}: the server lists no model; name one with --model")
        return models[0]

    def calibrate(self, dialect: Dialect, model: str, system: str, seed: int) -> Calibration:
        """Tokens of a few texts behind `system`, by `/tokenize`, else by the usage of one-token requests."""
        texts = probe_texts(seed, salt=str(time.time_ns()))
        prompts = [_prompt(dialect, system, text) for text in texts]
        counts = [self._tokenize(model, prompt) for prompt in prompts]
        if None in counts:
            return fit(texts, [self._ask_one_token(dialect, model, prompt) for prompt in prompts], "usage")
        return fit(texts, [count for count in counts if count is not None], "tokenize")

    def count_tokens(self, model: str, text: str) -> int | None:
        """Tokens of an answer that its server did not count; None when it cannot. Servers disagree on how to ask."""
        count = self._tokenize(model, {"prompt": text, "content": text, "add_special_tokens": False})
        return self._post_count("/extras/tokenize/count", {"input": text}) if count is None else count

    def _tokenize(self, model: str, prompt: dict[str, Any]) -> int | None:
        return self._post_count("/tokenize", {"model": model} | prompt)

    def _post_count(self, path: str, body: dict[str, Any]) -> int | None:
        try:
            answer = self._ask("POST", self._address.root + path, json=body)
            found = answer.json() if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        count = found.get("count", len(tokens) if isinstance(tokens := found.get("tokens"), list) else None)
        # llama.cpp answers a question it does not understand with no tokens at all.
        return count if isinstance(count, int) and count > 0 else None

    def _ask_one_token(self, dialect: Dialect, model: str, prompt: dict[str, Any]) -> int:
        root, path = self._address.root, PATHS[dialect]
        cap = {"options": {"num_predict": 1}} if dialect == "ollama" else {"max_tokens": 1}
        try:
            asked = {"model": model, "stream": False} | prompt | cap
            answer = self._ask("POST", root + path, _CALIBRATION_TIMEOUT_S, json=asked)
            found = answer.json()
            return int(found.get("prompt_eval_count") or found["usage"]["prompt_tokens"])
        except (httpx2.HTTPError, *_NO_COUNT) as error:
            raise Unusable(
                f"{root}{path}: prompt lengths cannot be calibrated: no /tokenize, and a one-token request "
                f"reports no usage ({type(error).__name__}); use a workload with written prompts, such as coding"
            ) from None


def _prompt(dialect: Dialect, system: str, text: str) -> dict[str, Any]:
    if dialect == "completions":
        return {"prompt": f"{system}\n\n{text}" if system else text}
    messages = [{"role": "system", "content": system}] if system else []
    return {"messages": [*messages, {"role": "user", "content": text}]}


def _models(answer: httpx2.Response) -> tuple[list[str] | None, str]:
    """Names and the owner that the list gives; None when it is no list."""
    try:
        found = answer.json() if answer.status_code == 200 else None
    except (ValueError, RecursionError):
        return None, ""
    rows = found.get("data", found.get("models")) if isinstance(found, dict) else None
    if not isinstance(rows, list):
        return None, ""
    rows = [row for row in rows if isinstance(row, dict)]
    names = [str(row.get("id") or row.get("name")) for row in rows if row.get("id") or row.get("name")]
    return names, next((str(row["owned_by"]) for row in rows if row.get("owned_by")), "")


def _engine(answer: httpx2.Response, owner: str) -> str:
    if answer.headers.get("server", "") == "llama.cpp" or owner == "llamacpp":
        return "llama.cpp"
    return {"vllm": "vLLM", "sglang": "SGLang", "swarmtui-sim": "simulator"}.get(owner, "")
