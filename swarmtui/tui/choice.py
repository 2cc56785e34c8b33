"""What was chosen on the setup screen, turned into an order; or what is wrong with it."""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.conductor import catalogue
from swarmtui.model.endpoint import Secrets
from swarmtui.model.order import Order
from swarmtui.model.plan import Plan, parse_levels, parse_requests
from swarmtui.model.schema import BadInput

Kind = Literal["manual", "sweep", "cliff"]

KINDS: dict[Kind, str] = {
    "manual": "manual ramp: you steer C by keys",
    "sweep": "sweep: the levels, one after the other",
    "cliff": "find the cliff: doubles C, then closes in",
}


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """As typed; texts are read only when an order is made of them."""

    endpoint: str
    model: str
    workload: str
    plan: str
    levels: str
    runs: str
    requests: str
    warmup: str
    label: str = ""
    note: str = ""
    api_key_env: str | None = None


def make_order(choice: Choice, root: Path) -> Order:
    """Raises BadInput with the name of the field for the first thing that cannot be."""
    catalogue.check_endpoint(choice.endpoint)
    levels = parse_levels(choice.levels) if choice.plan == "sweep" else (1,)
    plan = Plan(
        mode=choice.plan,  # type: ignore[arg-type]
        levels=levels,
        runs=_number(choice.runs, "runs", 1, 1000),
        requests=parse_requests(choice.requests),
        warmup=_number(choice.warmup, "warm-up", 0, 1000),
        seed=secrets.randbelow(1_000_000),
    )
    return Order(
        endpoints=(choice.endpoint,),
        model=choice.model.strip() or None,
        workload=_workload(choice.workload),
        plan=plan,
        session_root=str(root),
        secrets=_secrets(choice.api_key_env),
        label=choice.label.strip(),
        note=choice.note.strip(),
    )


@cache
def _workload(name: str) -> str:
    return catalogue.workload_path(name)


def _number(text: str, key: str, least: int, most: int) -> int:
    if not text.strip().isdigit() or not least <= int(text) <= most:
        raise BadInput(f"a number from {least} to {most}", key=key)
    return int(text)


def _secrets(variable: str | None) -> Secrets:
    if variable is None:
        return Secrets()
    key = os.environ.get(variable, "").strip()
    if not key:
        raise BadInput("this variable is not set, or empty", key=variable)
    return Secrets(api_key=key)
