"""Before any load: is the endpoint there, which model does it serve, how does it count tokens."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import msgspec

from swarmtui.model.endpoint import Address, Dialect, Secrets
from swarmtui.model.schema import Stored
from swarmtui.prompts.calibrate import Calibration, fit, probe_texts

_TIMEOUT_S = 10.0
_CALIBRATION_TIMEOUT_S = 120.0


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
        context: Any = verify
        if isinstance(verify, str):
            import ssl

            context = ssl.create_default_context(cafile=verify)
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

    def _get(self, path: str) -> httpx2.Response:
        root = self._address.root
        try:
            answer = self._client.get(root + path)
        except httpx2.ConnectTimeout:
            raise Unusable(f"{root}: no connection within {_TIMEOUT_S:g} s; is the host right?") from None
        except httpx2.ConnectError as error:
            raise Unusable(f"{root}: cannot connect ({error}); is the server up, are host and port right?") from None
        except httpx2.TimeoutException:
            raise Unusable(f"{root}{path}: no answer within {_TIMEOUT_S:g} s") from None
        except httpx2.HTTPError as error:
            raise Unusable(f"{root}{path}: {error or type(error).__name__}; does it speak HTTP?") from None
        if answer.status_code in (401, 403):
            raise Unusable(
                f"{root}{path}: HTTP {answer.status_code}, not authorised; "
                "name the variable that holds the key with --api-key-env"
            )
        return answer

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

    def calibrate(self, dialect: Dialect, model: str, seed: int) -> Calibration:
        """Tokens of a few texts, by `/tokenize`, else by the usage of one-token requests."""
        texts = probe_texts(seed, salt=str(time.time_ns()))
        counts = [self._tokenize(dialect, model, text) for text in texts[:1]]
        if counts[0] is not None:
            known = [counts[0], *(self._tokenize(dialect, model, text) or 0 for text in texts[1:])]
            return fit(texts, known, "tokenize")
        return fit(texts, [self._ask_one_token(dialect, model, text) for text in texts], "usage")

    def count_tokens(self, model: str, text: str) -> int | None:
        """Tokens of an answer that its server did not count; None when it cannot."""
        return self._tokenize("completions", model, text)

    def _tokenize(self, dialect: Dialect, model: str, text: str) -> int | None:
        body: dict[str, Any] = {"model": model}
        if dialect == "chat":
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body |= {"prompt": text, "add_special_tokens": False}
        try:
            answer = self._client.post(f"{self._address.root}/tokenize", json=body)
            count = answer.json().get("count") if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError, AttributeError):
            return None
        return count if isinstance(count, int) else None

    def _ask_one_token(self, dialect: Dialect, model: str, text: str) -> int:
        root = self._address.root
        messages = [{"role": "user", "content": text}]
        body: dict[str, Any]
        match dialect:
            case "ollama":
                path, body = "/api/chat", {"messages": messages, "options": {"num_predict": 1}}
            case "chat":
                path, body = "/v1/chat/completions", {"messages": messages, "max_tokens": 1}
            case "completions":
                path, body = "/v1/completions", {"prompt": text, "max_tokens": 1}
        try:
            answer = self._client.post(
                root + path, json={"model": model, "stream": False} | body, timeout=_CALIBRATION_TIMEOUT_S
            )
            found = answer.json()
            count = found.get("prompt_eval_count") or found["usage"]["prompt_tokens"]
        except (httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unusable(
                f"{root}{path}: prompt lengths cannot be calibrated: no /tokenize, and a one-token request "
                f"reports no usage ({type(error).__name__}); use a workload with written prompts, such as coding"
            ) from None
        return int(count)


def _models(answer: httpx2.Response) -> tuple[list[str] | None, str]:
    """Names and the owner that the list gives; None when it is no list."""
    try:
        found = answer.json() if answer.status_code == 200 else None
    except (msgspec.DecodeError, ValueError):
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
