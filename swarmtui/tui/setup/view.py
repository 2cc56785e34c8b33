"""What can be chosen before a run, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swarmtui.client.catalogue import Machine, Task
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import SIMULATOR, Order
from swarmtui.model.telemetry import Discovered
from swarmtui.text import counted, plain
from swarmtui.tui.lines import left, wrapped
from swarmtui.tui.numbers import clock
from swarmtui.tui.setup.choice import Field, Kind

_SAMPLE = 600
_SHORT = 4

KINDS: dict[Kind, str] = {
    "sweep": "as the workload says",
    "manual": "manual ramp: you steer C by keys",
    "cliff": "find the cliff: doubles C, closes in",
    "open": "open loop: requests come at a rate",
    "probe": "probe: one run, for the history",
}


def found_words(server: Discovered) -> str:
    if not server.reachable:
        return f"{plain(server.url)}  ✖ {plain(server.problem) or 'does not answer'}"
    parts = [plain(server.engine), plain(server.models[0]) if server.models else ""]
    parts.append(counted(server.seats, "seat", "seats") if server.seats else "")
    parts.append(f"▲ {plain(server.problem)}" if server.problem else "")
    return f"{plain(server.url).removeprefix('http://')}  " + ", ".join(part for part in parts if part)


def server_rows(found: Sequence[Discovered], known: Mapping[str, str], recent: Sequence[str]) -> list[tuple[str, str]]:
    """Address and words: found here, configured by name, used of late; each once."""
    rows = {server.url: found_words(server) for server in found}
    for name, url in known.items():
        rows.setdefault(url, f"{plain(name)}  {plain(url)}")
    for url in recent:
        if not url.startswith(SIMULATOR) or "?" in url:
            rows.setdefault(url, f"{plain(url)}  recent")
    return list(rows.items())


def machine_rows(machines: Sequence[Machine]) -> list[tuple[str, str]]:
    width = max((len(SIMULATOR + machine.name) for machine in machines), default=0)
    rows = []
    for machine in machines:
        each = counted(machine.seats, "seat", "seats")
        seats = f"{machine.replicas} × {each}" if machine.replicas > 1 else each
        name = SIMULATOR + machine.name
        rows.append((name, f"{name:<{width}}  {seats}"))
    return rows


def field_hints(plan: Plan, kind: Kind) -> dict[Field, str]:
    """What is taken where a field stays empty; `plan` is the workload's own as long as none can be made."""
    hints: dict[Field, str] = {
        "levels": ",".join(map(str, plan.levels)),
        "rate": "a second: 4, or 2,4,8",
        "runs": str(plan.runs),
        "requests": f"as many as {plan.duration_s:g} s take" if plan.duration_s else str(plan.requests),
        "warmup": str(plan.warmup),
    }
    return hints | {"requests": "100", "warmup": "1"} if kind == "open" and plan.load != "open" else hints


def in_columns(names: list[tuple[str, str]]) -> list[str]:
    """A name and what is said of it: beside each other, and never into each other."""
    width = max((len(name) for name, _ in names), default=0)
    return [f"{plain(name):<{width}}  {plain(words)}" for name, words in names]


def sweep_words(task: Task | None) -> str:
    """The plan of the workload itself, by its kind of load."""
    if task is None:
        return KINDS["sweep"]
    match task.plan.load:
        case "closed":
            return "sweep: level after level"
        case "barrier":
            return "batches: C tasks at once, level by level"
        case "swarm":
            return f"swarm: {max(task.plan.levels)} agents at once"
        case "open":
            return f"open loop: {_rates(task.plan)}"
        case "ramp":
            return f"ramp: C grows from {task.plan.levels[0]} to {task.plan.levels[-1]} by itself"
        case "mixed":
            return "mixed: a main task, others beside it"
        case "dag":
            return f"graph: {max(task.plan.levels)} tasks that wait for each other"


def plan_words(plan: Plan) -> str:
    """What is going to be done, in a line."""
    levels = ",".join(map(str, plan.levels))
    how = {
        "closed": f"closed loop, C={levels}",
        "barrier": f"batches of C={levels}",
        "swarm": f"{levels} agents at once",
        "open": f"open loop, {_rates(plan)}",
        "ramp": f"C={levels}, each for {clock(plan.every_s)}",
        "mixed": f"a main task and others beside it, C={levels}",
        "dag": f"a graph of {levels} tasks",
    }[plan.load]
    if plan.mode == "manual":
        how = "a ramp that you steer, from C=1"
    elif plan.mode == "cliff":
        how = "a search for the cliff"
    parts = [how]
    if plan.mode != "manual" and plan.load in ("closed", "open"):
        parts.append(f"{plan.duration_s:g} s each" if plan.duration_s else _requests(plan))
    if plan.runs > 1:
        parts.append(f"{plan.runs} runs" + (", in rotation" if plan.rotate else ""))
    if plan.serial == "measured":
        parts.append("and the same tasks one by one")
    parts.append(f"{plan.warmup} to warm up" if plan.warmup else "no warm-up")
    if plan.max_tokens is not None:
        parts.append(f"answers of at most {plan.max_tokens:,} tokens")
    return ", ".join(parts)


def ready_words(order: Order, absent: bool, width: int) -> str:
    """What Enter does; the endpoint is named where there is room for it."""
    does = "does not answer now; Enter tries all the same" if absent else "Enter starts"
    told = f"{'▲' if absent else '●'} {does}: {plan_words(order.plan)}"
    address = f" · {plain(order.endpoints[0])}"
    return told + address if len(told + address) < width else told


def task_words(task: Task, width: int, lines: int) -> list[str]:
    """What it is, for its line in the list may be cut; kind, number, lengths, check, load; a sample in what is left."""
    count = "made as needed" if task.prompts is None else f"{task.prompts} prompts" if task.prompts > 1 else "1 prompt"
    types = f" of {len(task.types)} types" if len(task.types) > 1 else ""
    facts = [
        f"{task.kind}, {count}{types}; in: {task.input}; out: {task.output}; cache {task.cache}",
        f"check: {task.check or 'none'}",
        f"load: {plan_words(task.plan)}" if task.own_load else "",
    ]
    what = wrapped(plain(task.description), width) if lines > _SHORT else []
    told = [*what, *wrapped(plain("; ".join(fact for fact in facts if fact)), width)][: lines - 1]
    sample = wrapped(f"“{plain(task.sample[:_SAMPLE])}”", width)
    room = lines - len(told)
    return [*told, *(sample if len(sample) <= room else [*sample[: room - 1], left(f"{sample[room - 1]} …", width)])]


def _requests(plan: Plan) -> str:
    return "1 request each" if str(plan.requests) == "1" else f"{plan.requests} requests each"


def _rates(plan: Plan) -> str:
    return f"{','.join(f'{rate:g}' for rate in plan.rates)} requests a second, {plan.arrival}"
