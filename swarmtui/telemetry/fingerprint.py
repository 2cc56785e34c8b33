"""Which server is it? Asked politely: GET only, from the best evidence to the weakest, and never for long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx2
import msgspec

from swarmtui.model.telemetry import Discovered
from swarmtui.telemetry.server_flags import (
    context_of_props,
    count,
    flags_of_cache_config,
    flags_of_props,
    flags_of_server_info,
    objects_in,
    seats,
)

OPENAI = "OpenAI-compatible"
_MOST_BYTES = 1 << 20
_OWNERS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "library": "Ollama",
    "swarmtui-sim": "simulator",
}
_METRICS = {"vllm:": "vLLM", "sglang:": "SGLang", "llamacpp:": "llama.cpp", "tgi_": "TGI"}


class _Reply(NamedTuple):
    status: int
    server: str
    text: str

    def json(self) -> dict[str, Any]:
        """Empty when it is no JSON object, or no good answer."""
        if self.status != 200:
            return {}
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


_NOTHING = _Reply(0, "", "")


class _Asker:
    """One server, until the time is over. `alive` is false once it gives no HTTP answer."""

    def __init__(self, root: str, client: httpx2.Client, give_up: float) -> None:
        self._root, self._client, self._give_up = root, client, give_up
        self.alive = True

    def get(self, path: str) -> _Reply:
        left = self._give_up - time.monotonic()
        if left <= 0 or not self.alive:
            return _NOTHING
        body = bytearray()
        try:
            with self._client.stream("GET", self._root + path, timeout=left) as answer:
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > _MOST_BYTES or time.monotonic() > self._give_up:
                        return _NOTHING
                server = answer.headers.get("server", "")
                return _Reply(answer.status_code, server, body.decode(errors="replace"))
        except (httpx2.HTTPError, httpx2.InvalidURL):
            self.alive = False
            return _NOTHING


def fingerprint(
    url: str, *, timeout_s: float = 1.0, client: httpx2.Client | None = None, give_up: float | None = None
) -> Discovered | None:
    """The server at this address (without /v1); None when it is none that serves models."""
    if client is None:
        with httpx2.Client(trust_env=False, verify=False, timeout=timeout_s) as own:
            return fingerprint(url, timeout_s=timeout_s, client=own, give_up=give_up)
    asker = _Asker(url.rstrip("/"), client, time.monotonic() + timeout_s if give_up is None else give_up)
    listed = asker.get("/v1/models")
    if not asker.alive:
        return None
    rows = _rows(listed.json())
    locked = listed.status in (401, 403)
    engine = "llama.cpp" if listed.server == "llama.cpp" else _owner(rows)
    metrics = asker.get("/metrics").text if engine in ("", "vLLM") else ""
    engine = engine or next((name for prefix, name in _METRICS.items() if f"\n{prefix}" in f"\n{metrics}"), "")
    found = _details(asker, engine, metrics)
    if found is None and rows is None and not locked:
        return None
    found = found or Discovered(url=url, engine=OPENAI)
    return msgspec.structs.replace(
        found,
        url=url,
        models=tuple(str(row["id"]) for row in rows or () if row.get("id")) or found.models,
        context=_context(rows) or found.context,
        problem=f"HTTP {listed.status}: it wants a key, --api-key-env" if locked else found.problem,
    )


def _details(asker: _Asker, engine: str, metrics: str) -> Discovered | None:
    """What its own addresses add; they are tried one by one where the engine is not known yet."""
    if engine == "simulator":
        told = asker.get("/server_info").json()
        each, replicas = count(told.get("seats")), count(told.get("replicas"))
        made = {str(name): str(told[name]) for name in ("preset", "seats", "replicas", "speed") if name in told}
        number = each * (replicas or 1) if each else None
        return Discovered(url="", engine=engine, version=_version(told), seats=number, flags=made)
    if engine == "vLLM":
        flags = flags_of_cache_config(metrics)
        version = _version(asker.get("/version").json())
        return Discovered(url="", engine=engine, version=version, flags=flags or None)
    for name, look in (("llama.cpp", _llama), ("SGLang", _sglang), ("TGI", _tgi), ("Ollama", _ollama)):
        if engine in ("", name):
            found = look(asker)
            if found is not None:
                return found
    if not engine and (version := _version(asker.get("/version").json())):
        return Discovered(url="", engine=OPENAI, version=version)
    return Discovered(url="", engine=engine) if engine else None


def _llama(asker: _Asker) -> Discovered | None:
    reply = asker.get("/props")
    props = reply.json()
    if "total_slots" not in props:
        if reply.status == 503 and reply.server == "llama.cpp":
            return Discovered(url="", engine="llama.cpp", reachable=False, problem="it is loading its model")
        return None
    flags = flags_of_props(props)
    return Discovered(
        url="",
        engine="llama.cpp",
        version=str(props.get("build_info", "")),
        context=count(context_of_props(props)),
        seats=seats("llama.cpp", flags, props),
        flags=flags,
    )


def _sglang(asker: _Asker) -> Discovered | None:
    info = asker.get("/server_info").json()
    if "max_running_requests" not in info and "internal_states" not in info:
        return None
    return Discovered(
        url="",
        engine="SGLang",
        version=_version(info),
        context=count(info.get("context_length")),
        seats=seats("SGLang", None, info),
        flags=flags_of_server_info(info),
    )


def _tgi(asker: _Asker) -> Discovered | None:
    info = asker.get("/info").json()
    if not isinstance(info.get("model_id"), str):
        return None
    return Discovered(
        url="",
        engine="TGI",
        version=_version(info),
        models=(info["model_id"],),
        context=count(info.get("max_total_tokens")),
        flags=flags_of_server_info(info),
    )


def _ollama(asker: _Asker) -> Discovered | None:
    if not asker.get("/").text.startswith("Ollama is running"):
        return None
    loaded = objects_in(asker.get("/api/ps").json().get("models"))
    contexts = [count(model.get("context_length")) for model in loaded]
    return Discovered(
        url="",
        engine="Ollama",
        version=_version(asker.get("/api/version").json()),
        context=next((context for context in contexts if context), None),
    )


def _rows(found: dict[str, Any]) -> list[Mapping[str, Any]] | None:
    """The models of an OpenAI list, which may be empty; None when it is none."""
    listed = found.get("data")
    return objects_in(listed) if isinstance(listed, list) else None


def _owner(rows: list[Mapping[str, Any]] | None) -> str:
    owners = (str(row.get("owned_by")) for row in rows or ())
    return next((_OWNERS[owner] for owner in owners if owner in _OWNERS), "")


def _context(rows: list[Mapping[str, Any]] | None) -> int | None:
    for row in rows or ():
        meta = row.get("meta")
        given = row.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
        if count(given):
            return count(given)
    return None


def _version(found: dict[str, Any]) -> str:
    version = found.get("version")
    return version if isinstance(version, str) else ""
