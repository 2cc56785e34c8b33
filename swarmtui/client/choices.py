"""The choices of the user for a run, as typed: on the command line, or on the setup screen, which remembers them."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored
from swarmtui.model.load import Arrival, Rules
from swarmtui.model.plan import DEFAULT_WORKLOAD, AgentHeader

# A plan to choose from: a sweep as the workload says, another goal, an open loop, or a probe. `quick` and `capacity`
# search for the capacity with bounds of 20 %, for as long as `budget` says, and of 1 %.
PlanKind = Literal["quick", "capacity", "sweep", "manual", "cliff", "open", "probe"]


class RunChoices(Stored, frozen=True, kw_only=True):
    """The choices for one run. What was not chosen falls back to the endpoint's config, then to the workload.

    `endpoints` are URLs, names in config.toml, or `sim:PRESET`; `headers` and `tags` are written K=V.
    """

    endpoints: tuple[str, ...] = ()
    workload: str = DEFAULT_WORKLOAD
    model: str | None = None
    api: str | None = None
    plan: PlanKind = "sweep"
    levels: str | None = None
    runs: str | None = None
    requests: str | None = None
    duration: str | None = None
    warmup: str | None = None
    rate: str | None = None
    arrival: Arrival | None = None
    burst: float | None = None
    serial_rates: str | None = None
    canaries: str | None = None
    complete: bool = False
    precision: str | None = None
    max_gap: str | None = None
    time_scale: float | None = None
    rules: Rules | None = None
    too_long: str | None = None
    agent_header: AgentHeader | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    workers: int | None = None
    hosts: str = ""
    slo: str = ""
    max_c: int | None = None
    budget: str = "60s"
    price_per_hour: float | None = None
    timeout: str = "600s"
    idle_timeout: str = "30s"
    on_restart: str = "wait"
    api_key_env: str | None = None
    headers: tuple[str, ...] = ()
    ca_file: str | None = None
    insecure: bool = False
    metrics_urls: tuple[str, ...] = ()
    gpu_metrics_urls: tuple[str, ...] = ()
    model_path: str = ""
    no_gpu: bool = False
    keep_text: bool = False
    no_previews: bool = False
    label: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    server_flags: str = ""
    baseline: str | None = None
