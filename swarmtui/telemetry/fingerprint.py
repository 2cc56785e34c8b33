"""Recognise an inference server by its replies to GET requests, best evidence first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from swarmtui.engines.base import PROMETHEUS_PATH, Engine, ProbeReply, objects, positive
from swarmtui.engines.registry import ENGINES, GENERIC, REVERSE_PROXY, engine_from_metrics, engine_from_models
from swarmtui.http_client import HttpClient, RequestFailed
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.telemetry.prometheus import parse_samples

MODELS_PATH = "/v1/models"
_MAX_BYTES = 1 << 20


class _Prober:
    """Send GET requests to one server until the deadline; `alive` turns false when it gives no HTTP reply."""

    def __init__(self, root: str, client: HttpClient, deadline: float) -> None:
        self._root, self._client, self._deadline = root, client, deadline
        self._replies: dict[str, ProbeReply] = {}
        self.alive = True

    def get(self, path: str) -> ProbeReply:
        if path not in self._replies:
            self._replies[path] = self._get(path)
        return self._replies[path]

    def _get(self, path: str) -> ProbeReply:
        left = self._deadline - time.monotonic()
        if left <= 0 or not self.alive:
            return ProbeReply()
        try:
            reply = self._client.get(self._root + path, left, max_bytes=_MAX_BYTES)
        except RequestFailed as error:
            self.alive = error.kind == "too_large"
            return ProbeReply()
        return ProbeReply(reply.status, reply.server, reply.text)


def fingerprint(
    url: str, *, client: HttpClient, timeout_s: float = 1.0, deadline: float | None = None
) -> DiscoveredServer | None:
    """Describe the server at this address (without /v1); None if it is not an inference server."""
    prober = _Prober(url.rstrip("/"), client, time.monotonic() + timeout_s if deadline is None else deadline)
    listed = prober.get(MODELS_PATH)
    if not prober.alive:
        return None
    rows = _models(listed)
    needs_key = listed.status in (401, 403)
    engine = engine_from_models(rows or [], listed.server) or engine_from_metrics(prober.get(PROMETHEUS_PATH).text)
    if engine is None:
        candidates = (one for one in ENGINES if one.probe_paths)
        engine = next((one for one in candidates if one.recognises(prober.get(one.probe_paths[0]))), None)
    if engine is None:
        if rows is None and not needs_key:
            return None
        engine = REVERSE_PROXY if REVERSE_PROXY.serves(listed.server) else GENERIC
    # A gateway may fail in its own way where others ask for a key.
    needs_key = needs_key or (engine.gateway and rows is None)
    found = _describe(prober, engine)
    found = msgspec.structs.replace(found, kv_tokens=engine.kv_tokens(found, None))
    described = msgspec.structs.replace(
        found,
        url=url,
        models=tuple(str(row["id"]) for row in rows or () if row.get("id")) or found.models,
        context=_context(rows or []) or found.context,
        problem=f"HTTP {listed.status}: it needs an API key (--api-key-env)" if needs_key else found.problem,
    )
    return client.redactor.redact_all(described)


def _describe(prober: _Prober, engine: Engine) -> DiscoveredServer:
    found = engine.describe({path: prober.get(path) for path in engine.probe_paths})
    if not engine.settings_metric:
        return found
    info = parse_samples(prober.get(PROMETHEUS_PATH).text, lambda name: name == engine.settings_metric)
    labels = info[0].labels if info else {}
    caches = [engine.kv_cache_from_settings(sample.labels) for sample in info or ()]
    pool = sum(size or 0 for size, _ in caches) if caches and all(size for size, _ in caches) else None
    names = [name for name in engine.settings_labels if labels.get(name, "None") != "None"]
    flags = (found.flags or {}) | {name.replace("_", "-"): labels[name] for name in names}
    return msgspec.structs.replace(
        found,
        flags=flags or None,
        kv_tokens=pool,
        block_size=caches[0][1] if caches else None,
        kv_token_bytes=engine.kv_token_bytes(labels),
    )


def _models(reply: ProbeReply) -> list[Mapping[str, Any]] | None:
    """Return the entries of an OpenAI model list, which may be empty; None if it is no such list."""
    listed = reply.json().get("data")
    return objects(listed) if isinstance(listed, list) else None


def _context(rows: list[Mapping[str, Any]]) -> int | None:
    for row in rows:
        meta = row.get("meta")
        given = row.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
        if positive(given):
            return positive(given)
    return None
