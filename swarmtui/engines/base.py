"""Define what the program knows about an inference server, with the defaults of an OpenAI-compatible one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from swarmtui.engines.command_line import is_secret
from swarmtui.engines.knobs import Knob
from swarmtui.model.telemetry import DiscoveredServer, ServerState
from swarmtui.model.tuning import value_text

PROMETHEUS_PATH = "/metrics"
_MAX_COUNT = 1 << 31


class ProbeReply(NamedTuple):
    """The reply to one GET; status 0 means that there was none."""

    status: int = 0
    server: str = ""
    text: str = ""

    def json(self) -> dict[str, Any]:
        """Return the JSON object in the body of a 200 reply, else an empty one."""
        if self.status != 200:
            return {}
        try:
            found = msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Engine:
    """One kind of inference server. Subclasses set the attributes and override the methods in which it differs."""

    name: str
    ports: tuple[int, ...] = ()
    # It forwards requests to servers elsewhere: the flags, slots and GPUs of its process are not theirs.
    gateway: bool = False

    # Recognition, best evidence first: `owned_by` in /v1/models, the Server header, the metrics' prefix, and last
    # `recognises` with the reply to the first of `probe_paths`. `command` is searched in the program's name.
    owners: tuple[str, ...] = ()
    server_header: str = ""
    probe_paths: tuple[str, ...] = ()
    command: str = ""

    # Settings: prefixes of environment variables, short flags by their long names, the flags that set the number of
    # slots, as the user types them, and those for tensor parallelism, without dashes.
    environment: tuple[str, ...] = ()
    short_flags: Mapping[str, str] = {}
    slot_flags: tuple[str, ...] = ()
    # The flag for the context of all slots together, if they share it.
    total_context_flag: str = ""
    tensor_parallel_flags: tuple[str, ...] = ()
    # The setting for a KV cache of 8 bits, as the user types it.
    narrow_kv: str = ""
    # What a tuner may change, by stage and within it the most promising first.
    knobs: tuple[Knob, ...] = ()
    # Request fields that turn off the server's prompt cache.
    uncached_request: Mapping[str, object] = {}

    # Metrics: names without prefix → field of ServerState. Some collectors replace the colon of a prefix by "_".
    metrics_path: str | None = PROMETHEUS_PATH
    metric_prefixes: tuple[str, ...] = ()
    metric_values: Mapping[str, str] = {}
    metric_histograms: Mapping[str, str] = {}
    metric_positions: Mapping[str, str] = {}
    # Output tokens are counted when their request ends, and not while they are generated.
    counts_tokens_at_end: bool = False
    # A metric whose labels are settings, and those of its labels that are worth keeping.
    settings_metric: str = ""
    settings_labels: tuple[str, ...] = ()
    # Series that differ only in a rank repeat each other; those with a `breakdown_label` are part of a total.
    rank_labels: tuple[str, ...] = ()
    breakdown_label: str = ""
    # What the user cannot expect, as the end of a sentence that begins with the engine's name.
    metrics_limits: str = ""

    def recognises(self, reply: ProbeReply) -> bool:
        return False

    def describe(self, replies: Mapping[str, ProbeReply]) -> DiscoveredServer:
        """Describe the server from the replies to `probe_paths`; the caller fills in the URL and the model list."""
        return self._server(replies[self.probe_paths[0]].json() if self.probe_paths else {})

    def _server(self, info: Mapping[str, Any], **fields: Any) -> DiscoveredServer:
        """Return the server that reports `info`, which may contain its version, with these fields."""
        return DiscoveredServer(url="", engine=self.name, version=version_in(info), **fields)

    def slots(self, flags: Mapping[str, str] | None, info: Mapping[str, Any] | None = None) -> int | None:
        """Return how many requests the server runs at once, over all its replicas; None when that is not known.

        `flags` are those of its process, None if it cannot be read; `info` is what the server reports.
        """
        return None

    def slots_setting(self, slots: int) -> str:
        """Return the setting for this many slots, as the user types it; empty if there is none."""
        if not self.slot_flags:
            return ""
        name = self.slot_flags[0]
        return f"{name} {slots}" if name.startswith("-") else f"{name}={slots}"

    def kv_tokens(self, found: DiscoveredServer, flags: Mapping[str, str] | None) -> int | None:
        """Return the size of the KV cache of a server whose process has these flags; None if they are not known."""
        return found.kv_tokens

    def context_flag(self, found: DiscoveredServer, slots: int) -> str:
        """Return the flag with which a request keeps its context with this many slots; empty if it needs none."""
        return ""

    def kv_cache_from_settings(self, labels: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Return the tokens of the KV cache of the engine that has these labels, and those of one of its blocks."""
        return None, None

    def kv_token_bytes(self, labels: Mapping[str, str]) -> float | None:
        """Return what a token takes in the KV cache of the engine that has these labels."""
        return None

    def complete(self, values: dict[str, float]) -> None:
        """Add metrics that follow from others, and convert those that this engine counts differently."""

    def parse_metrics(self, text: str) -> ServerState | None:
        """Parse a page at `metrics_path` that is not in the Prometheus format."""
        return None


def settings(values: Mapping[str, Any]) -> dict[str, str]:
    """Return a JSON object's plain values as flags; unset and secret ones are left out."""
    plain = {str(k).replace("_", "-"): value_text(v) for k, v in values.items() if isinstance(v, str | int | float)}
    return {name: value for name, value in plain.items() if value and not is_secret(name, value)}


def flag_number(flags: Mapping[str, str] | None, *names: str) -> int | None:
    found = (flags.get(name, "") for name in names) if flags else ()
    return next((int(text) for text in found if re.fullmatch(r"[1-9]\d{0,8}", text)), None)


def positive(value: object) -> int | None:
    """Return a plausible count; a server may report anything in its place."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT else None


def objects(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def version_in(found: Mapping[str, Any]) -> str:
    version = found.get("version")
    return version if isinstance(version, str) else ""
