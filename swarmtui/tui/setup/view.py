"""The texts of the setup screen: endpoints, workloads, plans and what Enter starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap

import msgspec

from swarmtui.analysis.limits.slo import DEFAULT_SLO, parse_slo
from swarmtui.client.catalogue import SimulatorPreset, WorkloadInfo
from swarmtui.client.choices import PlanKind
from swarmtui.model.endpoint import SIMULATOR_PREFIX, show_url
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.text import count_noun, sanitize
from swarmtui.tui.lines import first_lines, longest_fit, shorten, wrap
from swarmtui.tui.pick_list import PickItem
from swarmtui.tui.setup.form import PlanField

_SAMPLE_CHARS = 600
_SHORT = 4
# How the address of a server on this host begins.
LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")

PLAN_TEXTS: dict[PlanKind, str] = {
    "quick": "how many agents? about a minute",
    "capacity": "how many agents? surer, minutes",
    "sweep": "as defined by the workload",
    "manual": "by hand: keys change the agents",
    "cliff": "cliff: double until requests wait",
    "open": "open loop: requests per second",
    "probe": "probe: one request, for its history",
}


# endpoints


def server_text(server: DiscoveredServer) -> str:
    address = sanitize(server.url).removeprefix("http://")
    if not server.reachable:
        return f"{address}  ✖ {sanitize(server.problem) or 'does not answer'}"
    # Whose server it is comes first: a narrow list cuts the end.
    parts = [f"? of {sanitize(server.user)}" if server.user else "", sanitize(server.engine)]
    parts.append(count_noun(server.slots, "slot") if server.slots else "")
    parts.append(sanitize(server.models[0]) if server.models else "")
    parts.append(f"? {sanitize(server.problem)}" if server.problem else "")
    return f"{address}  " + ", ".join(part for part in parts if part)


def server_lines(server: DiscoveredServer, width: int) -> list[str]:
    """Describe a server: its problem, its flags, then engine, slots, context, process and model."""
    # After the first paint: a server is described once it was found.
    from swarmtui.analysis.compare.differences import flags_text

    if not server.reachable:
        return wrap(server_text(server), width)
    facts = (
        f"{server.engine} {server.version}".strip(),
        count_noun(server.slots, "slot") if server.slots else "",
        f"context {server.context:,} {'each' if server.slots else 'per request'}" if server.context else "",
        f"pid {server.pid}" if server.pid else "",
        ", ".join(server.models[:1]),
    )
    texts = (
        f"? {server.problem}" if server.problem else "",
        f"flags: {flags_text(server.flags)}" if server.flags else "",
        " · ".join(fact for fact in facts if fact),
    )
    return [line for text in texts if text for line in wrap(sanitize(text), width)]


def server_items(
    found: Sequence[DiscoveredServer], configured: Mapping[str, str], recent: Sequence[str], *, searched: bool = False
) -> list[PickItem]:
    """Return the items of the discovered, configured and recently used endpoints, each once.

    Once this host was `searched`, a recent endpoint on it that was not found is not running.
    """
    ports = {_port(server.url) for server in found}
    rows = {server.url: server_text(server) for server in found}
    for name, url in configured.items():
        rows.setdefault(url, f"{sanitize(name)}  {sanitize(show_url(url))}")
    for url in recent:
        if not url.startswith(SIMULATOR_PREFIX) or "?" in url:
            gone = searched and url.startswith(LOOPBACK) and _port(url) not in ports
            address = sanitize(url).removeprefix("http://")
            rows.setdefault(url, f"{address}  recent{', not running' if gone else ''}")
    return list(starmap(PickItem, rows.items()))


def with_gone(before: Sequence[DiscoveredServer], found: Sequence[DiscoveredServer]) -> tuple[DiscoveredServer, ...]:
    """Keep the order of the servers that were found before, also of those that are gone; new ones come last.

    The models of a server that is gone or loading can still be picked.
    """
    now = {server.url: server for server in found}
    kept = []
    for server in before:
        gone = msgspec.structs.replace(server, reachable=False, problem="not running")
        known = now.pop(server.url, gone)
        kept.append(known if known.reachable else msgspec.structs.replace(known, models=known.models or server.models))
    return (*kept, *now.values())


def _port(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition(":")[2]


def preset_items(presets: Sequence[SimulatorPreset]) -> list[PickItem]:
    items = []
    for preset in presets:
        name, slots = SIMULATOR_PREFIX + preset.name, count_noun(preset.slots, "slot")
        items.append(PickItem(name, name, f"{preset.replicas} × {slots}" if preset.replicas > 1 else slots))
    return items


# what was found last time


def last_time_texts(answer: str, age_s: float, flags: str = "") -> tuple[str, ...]:
    """`last time with --parallel 2: 15 agents, 2 hours ago; 0 opens it`, from long to short."""
    named, said = f" with {sanitize(flags)}" if flags else "", f"{answer}, {_ago(age_s)}"
    return f"last time{named}: {said}; 0 opens it", f"last time: {said}; 0 opens it", f"last time: {said}"


def _ago(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return f"{count_noun(int(seconds // length), unit)} ago"
    return "just now"


# workloads


def workload_lines(workload: WorkloadInfo, width: int, height: int, max_tokens: int | None = None) -> list[str]:
    """Describe a workload in `height` lines: description, prompts, check, load, and a sample prompt.

    `max_tokens` is the limit of the plan, which replaces that of the workload.
    """
    count = "generated prompts" if workload.prompts is None else count_noun(workload.prompts, "prompt")
    types = f" of {len(workload.types)} types" if len(workload.types) > 1 else ""
    output = workload.output if max_tokens is None else f"at most {max_tokens:,} tokens"
    facts = [
        f"{count}{types}, {workload.input}; answers: {output}",
        f"cache {workload.cache}; check: {workload.check or 'none'}",
        f"load: {plan_text(workload.plan)}" if workload.own_load else "",
    ]
    description = wrap(sanitize(workload.description), width) if height > _SHORT else []
    lines = [*description, *wrap(sanitize("; ".join(fact for fact in facts if fact)), width)][: height - 1]
    sample = wrap(f"“{sanitize(workload.sample[:_SAMPLE_CHARS])}”", width)
    return [*lines, *first_lines(sample, height - len(lines), width)]


# plans


FIELD_HELP: dict[str, tuple[str, str]] = {
    "endpoints": ("endpoint", "servers on this host, those of config.toml and of the last runs, and simulators"),
    "url": ("URL", "a server on this or another host: http://10.0.0.4:8000"),
    "models": ("model", "the models that the server lists"),
    "model": ("name", "the name of a model, where the server does not list it"),
    "api": ("API", "the API that your agents use; auto takes the first one that answers"),
    "label": ("label", "a name for this run in lists, charts and comparisons"),
    "note": ("note", "a comment that reports repeat"),
    "flags": ("flags", "flags that cannot be seen from here; they are compared with those of other sessions"),
    "workloads": ("workload", "what is sent: prompts, their lengths, and how answers are checked"),
    "file": ("file", "a workload file; `swarmtui workloads show coding` prints one with comments"),
    "plans": ("plan", "what is measured; Enter starts it"),
    "levels": ("levels", "numbers of agents, measured one after the other: 1,2,4,8"),
    "rate": ("rate", "requests per second, whether answered or not: 4; or several rates: 2,4,8"),
    "runs": ("runs", "how often each level is measured; a verdict against a baseline needs four"),
    "requests": ("requests", "requests of each run: 40, or 4C for four per agent"),
    "precision": ("precision", "in place of requests: a run lasts until ± is this share of the steady rate"),
    "slo": ("SLO", "what each agent needs. ttft_p90=2s,stream_p10=20: a first token within 2 s and 20 tok/s, for 90 % "
            "of requests. Times: ttft ttfo tpot e2e stall job; tok/s: stream"),
    "max_tokens": ("answers", "the longest answer, in tokens. A search of a minute takes 128, so that enough answers "
                   "end; with longer ones, agents wait longer for a slot"),
    "warmup": ("warm-up", "requests before the first level, which are not counted"),
    "canaries": ("canaries", "share of requests that are questions with known answers: do answers get worse?"),
    "too_long": ("too long", "requests of a trace that do not fit into the context: refuse, skip or truncate"),
    "hosts": ("load from", "where the load comes from: this host, or the nodes of a Ray cluster (auto, ray://…)"),
}  # fmt: skip


# What the words of an SLO mean, while its field has the cursor; from long to short.
SLO_HINTS = (
    "ttft_p90=2s: first token within 2 s for 90 % of requests; stream_p10=20: 20 tok/s for 90 %; also p50, p95, e2e …",
    "ttft_p90=2s: first token ≤ 2 s for 90 %; stream_p10=20: 20 tok/s for 90 %",
    "ttft_p90=2s: first token ≤ 2 s for 90 %",
)


def field_hints(plan: Plan, kind: PlanKind) -> dict[PlanField, str]:
    """Return the value that an empty field stands for; `plan` is the workload's own if none can be made yet."""
    load = plan.load
    requests = load.run_length if load.replayed else str(load.per_run)
    hints: dict[PlanField, str] = {
        "slo": plan.slo or f"none, or {DEFAULT_SLO.partition(',')[0]},…",
        "max_tokens": "as in the workload" if plan.max_tokens is None else f"at most {plan.max_tokens} tokens",
        "levels": ",".join(map(str, load.levels)),
        "rate": "requests/s: 4, or 2,4,8",
        "runs": str(load.runs),
        "requests": f"as many as fit into {load.duration_s:g} s" if load.duration_s else requests,
        "warmup": f"{count_noun(load.warmup_requests, 'request')}, not counted",
        "canaries": "none, or 1% to 20%",
        "precision": "2%: as long as ± 2 % takes",
        "too_long": "refuse; or skip, truncate",
    }
    return (
        hints | {"requests": "100", "warmup": "1 request, not counted"}
        if kind == "open" and not load.by_rate
        else hints
    )


def sweep_text(workload: WorkloadInfo | None) -> str:
    """Describe the workload's own plan."""
    load = None if workload is None else workload.plan.load
    return PLAN_TEXTS["sweep"] if load is None else load.describe(load.title)


def plan_text(plan: Plan) -> str:
    """Describe a plan in one line."""
    load, warmup = plan.load, plan.load.warmup_requests
    goals = {"manual": "manual control from C=1", "cliff": "search for the cliff"}
    if plan.goal == "capacity":
        goals["capacity"] = f"how many agents with {parse_slo(plan.slo).words()}"
    parts = [goals.get(plan.goal) or load.describe(load.sentence)]
    if plan.goal not in ("manual", "capacity") and load.has("requests"):
        parts.append(f"{_run_length(plan)} each")
    if load.runs > 1:
        parts.append(f"{load.runs} runs" + (", rotated" if load.rotates else ""))
    if load.serial_tasks is None:
        parts.append("then the same tasks serially")
    if plan.goal != "capacity":
        parts.append(count_noun(warmup, "warm-up request") if warmup else "no warm-up")
    if plan.max_tokens is not None:
        parts.append(f"at most {plan.max_tokens:,} tokens per answer")
    return ", ".join(parts)


def _run_length(plan: Plan) -> str:
    """The requests that the table will count, where the levels are known."""
    load = plan.load
    if plan.goal != "sweep" or not isinstance(load, Closed) or load.duration_s is not None or load.half_width:
        return load.run_length
    least, most = min(map(load.counted, load.levels)), max(map(load.counted, load.levels))
    return f"about {least} to {most} requests" if least < most else count_noun(least, "request")


def ready_text(request: RunRequest, unreachable: bool, width: int) -> str:
    """Say what Enter starts, the server first; a search says more of the SLO if there is room."""
    address = sanitize(show_url(request.endpoints[0])).removeprefix("http://")
    hosts = f" · hosts {sanitize(request.hosts)}" if request.hosts else ""
    if unreachable:
        return shorten(f"? {address} does not answer; Enter tries: {plan_text(request.plan)}{hosts}", width - 1)
    if request.plan.goal != "capacity":
        return shorten(f"● Enter starts on {address}: {plan_text(request.plan)}{hosts}", width - 1)
    slo = parse_slo(request.plan.slo)
    start = f"● Enter asks {address} how many agents"
    limit = request.plan.max_tokens
    words = f"{start} have {slo.words()}{hosts}"
    tokens = f", at most {limit:,} tokens per answer" if limit is not None else ""
    return longest_fit(
        (words + tokens, words, f"{start}: {slo.short_words()}{hosts}", f"{start} it carries"), width - 1
    )
