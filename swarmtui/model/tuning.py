"""Experiments (tunes and A/B tests): what they compare, their results, and the log of changes that were tried."""

from __future__ import annotations

import re
from math import prod
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from swarmtui.model.base import SCHEMA_VERSION, BadInput, InputStruct, Stored, Versioned
from swarmtui.model.endpoint import SIMULATOR_PREFIX, ApiChoice
from swarmtui.model.parsing import parse_seconds, parse_toml
from swarmtui.model.plan import DEFAULT_WORKLOAD, AgentHeader

Value = str | int | float | bool
Flags = dict[str, Value]
Objective = Literal["out_tps", "ttft_s", "j_per_token", "agents"]
# Of an automatic tune: one start with few requests, starts that rank the best, and those of the A/B test at the end.
TuneStep = Literal["screen", "restart", "confirm"]
Side = Literal["A", "B"]
AbFigure = Literal["out_tps", "per_stream_tps", "ttft_s"]
Definition = TypeVar("Definition", "AbTest", "TuneFile")

_MAX_CONFIGURATIONS = 10_000
# The name of a tune that the user has not named.
DEFAULT_NAME = "tune"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")

# The power limit among the flags of a configuration.
POWER = "power_w"


class TunePlan(InputStruct, frozen=True, kw_only=True):
    """The options of `swarmtui run` with which a configuration is measured."""

    workload: str = DEFAULT_WORKLOAD
    model: str | None = None
    api: ApiChoice | None = None
    levels: Annotated[tuple[int, ...], Meta(min_length=1)] = (4,)
    runs: Annotated[int, Meta(ge=1)] = 1
    requests: str | int | None = None
    duration: str | None = None
    warmup: str | int | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0.0)] | None = None
    timeout: str = "600s"
    idle_timeout: str = "30s"
    api_key_env: str | None = None
    gpu_metrics_url: str | None = None


class Halving(InputStruct, frozen=True, kw_only=True):
    """Successive halving: measure all briefly, then the best `1/factor` with `factor` times as many requests."""

    factor: Annotated[int, Meta(ge=2)] = 3
    rounds: Annotated[int, Meta(ge=1, le=10)] = 3


class LiveKnob(InputStruct, frozen=True, kw_only=True):
    """A setting that is changed while a server runs: by the user's own command, or the power limit of its GPUs.

    A command is run without a shell: `apply` with each of the `values` as `{value}`, and `restore` at the end, each
    `within` its time. The limits are `watts`, for the GPUs of the server or for those that `gpus` names by their NVML
    index; unless `prefill` is false, each limit has a second run of 5 s, to tell the energy of prompts apart.
    """

    kind: Literal["command", "power"] = "command"
    name: str = ""
    values: tuple[Value, ...] = ()
    apply: str = ""
    restore: str = ""
    within: str = "30s"
    watts: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    gpus: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    prefill: bool = True

    @property
    def key(self) -> str:
        """The name of its value among the flags of a configuration."""
        return POWER if self.kind == "power" else self.name

    @property
    def choices(self) -> tuple[Value, ...]:
        return self.watts if self.kind == "power" else self.values

    def find_problem(self) -> tuple[str, str] | None:
        """Return the key that is wrong or missing, and why."""
        keys = ("watts", "gpus") if self.kind == "power" else ("name", "values", "apply", "restore")
        for key in ("watts", "gpus", "name", "values", "apply", "restore"):
            if key not in keys and getattr(self, key):
                return key, f"is not for a knob of kind {self.kind}"
        for key in ("watts",) if self.kind == "power" else ("name", "values", "apply"):
            if not getattr(self, key):
                return key, "is missing"
        if len({(type(value), value) for value in self.choices}) < len(self.choices):
            return "watts" if self.kind == "power" else "values", "duplicate value"
        if self.kind == "command" and "{value}" not in self.apply:
            return "apply", "does not contain {value}"
        return None


class TuneRecipe(InputStruct, frozen=True, kw_only=True):
    """Flags that were found for an engine, a family of models and a GPU; a user keeps it, or is sent it.

    `values` are those worth trying, instead of the catalogue's.
    """

    engine: str
    model: str = ""
    gpu: str = ""
    note: str = ""
    flags: Flags
    values: dict[str, Annotated[tuple[Value, ...], Meta(min_length=1)]] = {}


class AutoSearch(InputStruct, frozen=True, kw_only=True):
    """Search for the flags instead of trying all: within `budget`, from the command as it is.

    `engine` is that of the command, if its program does not tell; `allow_quality`: also try what may change answers.
    The flags of a `recipe` are tried first.
    """

    budget: str = "45m"
    slo: str = ""
    allow_quality: bool = False
    engine: str = ""
    recipe: TuneRecipe | None = None


class TuneFile(InputStruct, frozen=True, kw_only=True):
    """The file that `swarmtui tune` reads.

    In `command`, `{port}` is a free port, and `{--flag}` or `{NAME}` the value of that flag. Other flags are appended
    to the command, and names in capitals are put into the environment. `true` is a flag without a value, `false` omits
    it. The server inherits our environment without API keys, except the variables named in `pass_env`.
    The best `finalists` are restarted `restarts` times each, and ranked by these starts. Each `knob` is changed while a
    server runs: all its values are measured in one start. Without other flags, that is the only one: `restarts` is then
    how often each value is measured.
    With `auto`, flags replace those of the command, and `grid` has the values to choose from, instead of the catalogue.
    """

    command: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)] = DEFAULT_NAME
    url: str = "http://127.0.0.1:{port}"
    ready: str = "/v1/models"
    ready_within: str = "10m"
    stop: str = ""
    stop_within: str = "20s"
    cell_within: str = "1h"
    directory: str | None = None
    env: dict[str, str] = {}
    pass_env: tuple[str, ...] = ()
    grid: dict[str, Annotated[tuple[Value, ...], Meta(min_length=1)]] = {}
    configurations: tuple[Flags, ...] = ()
    knob: tuple[LiveKnob, ...] = ()
    plan: TunePlan = TunePlan()
    halving: Halving | None = None
    finalists: Annotated[int, Meta(ge=2)] = 3
    restarts: Annotated[int, Meta(ge=0)] = 3
    objective: Objective = "out_tps"
    seed: int = 0
    auto: AutoSearch | None = None


class AbTest(Stored, frozen=True, kw_only=True):
    """The servers to compare: `a` and `b` are endpoints or commands; with `aa` or `agent_header`, `b` is `a` again.

    `agent_header`: only the requests of B have this header.
    """

    name: str
    a: str
    b: str
    url: str | None = None
    figure: AbFigure = "out_tps"
    detect: float = 0.02
    max_runs: int = 16
    seed: int = 0
    aa: bool = False
    agent_header: AgentHeader | None = None
    pass_env: tuple[str, ...] = ()
    ready_within_s: float = 600.0
    stop_within_s: float = 20.0

    def target(self, side: Side) -> str:
        return self.a if side == "A" else self.b


class CacheUse(Stored, frozen=True, kw_only=True):
    """Prompt tokens per request of a level, and how many of them came from the prefix cache.

    They are from the usage of each response, or from the counters of the server, which may include requests of others.
    """

    prompt_tokens: float
    cached_tokens: float
    source: Literal["usage", "counters"]

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens


class LevelResult(Stored, frozen=True, kw_only=True):
    """The figures of one level of a start."""

    c: int
    out_tps: float | None = None
    ttft_s: float | None = None
    j_per_token: float | None = None
    mean_w: float | None = None


class Start(Stored, frozen=True, kw_only=True):
    """One start of a server, measured in one session. Null is not measured.

    The configuration is `flags`, in a round of a tune, or `side`, in an A/B test. The figures are those of its highest
    level `c`; `runs` are the tok/s of its runs. If it is broken (failed), `reason` says why, which has a code, and
    `log` has the last lines of the server's output. `simulated`: power and memory are simulated. `doubts` are why it is
    uncertain; what the runs of an A/B test even out is in `disturbances`.
    `prefill_j_per_token` is the energy per prompt token, measured with answers of one token; `decode_j_per_token` is
    what is left of `j_per_token` without that of the prompts. `levels` has the figures of every level.
    An automatic tune has `step`, and the capacity, `agents`, with its range; `flags` are then what differs from the
    command. `took_s` is the time from the start of the server to its end. `canaries` are those that passed, and all;
    `degenerate` is the share of answers that are empty or repeat one token, `alarms` say how answers got worse under
    load. `limit_tps` is what the hardware allows.
    """

    flags: Flags = {}
    side: Side | None = None
    round: int = 0
    step: TuneStep | None = None
    state: Literal["done", "broken"] = "done"
    reason: str = ""
    reason_code: str = ""
    log: tuple[str, ...] = ()
    session: str = ""
    c: int | None = None
    out_tps: float | None = None
    per_stream_tps: float | None = None
    runs: tuple[float, ...] = ()
    ttft_s: float | None = None
    j_per_token: float | None = None
    prefill_j_per_token: float | None = None
    decode_j_per_token: float | None = None
    mean_w: float | None = None
    peak_memory: int | None = None
    levels: tuple[LevelResult, ...] = ()
    errors: int | None = None
    start_s: float | None = None
    simulated: bool = False
    cache: CacheUse | None = None
    doubts: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()
    agents: int | None = None
    agents_low: int | None = None
    agents_high: int | None = None
    degenerate: float | None = None
    alarms: tuple[str, ...] = ()
    canaries: tuple[int, int] | None = None
    took_s: float | None = None
    limit_tps: float | None = None


class ExperimentStatus(Stored, frozen=True, kw_only=True):
    """The status of an experiment, for UIs; times are seconds of the wall clock.

    `pid` and `born`, its start time, show whether the process is still running. Without `flags` no configuration is
    being measured. `session` is the run of the current configuration. `ended` is empty until the experiment has ended.
    Of an automatic tune: `why` the current start was chosen, the tok/s that the hardware allows, and the budget.
    """

    pid: int
    born: float
    begun: float
    since: float
    round: int = 0
    flags: Flags | None = None
    phase: Literal["starting", "warming up", "running", "stopping"] = "starting"
    session: str = ""
    log: str = ""
    why: str = ""
    limit_tps: float | None = None
    budget_s: float | None = None
    ended: Literal["", "done", "stopped", "failed", "interrupted"] = ""


class Experiment(Stored, Generic[Definition], frozen=True, kw_only=True):
    """An experiment as it is stored: written after each step, so that nothing is measured twice.

    `problem` says why it cannot continue.
    """

    schema: int = SCHEMA_VERSION
    definition: Definition
    starts: tuple[Start, ...] = ()
    status: ExperimentStatus
    problem: str = ""


Tune = Experiment[TuneFile]


class TuneSteering(Versioned, frozen=True, kw_only=True):
    """What the user decides while an automatic tune runs; it is read before each start.

    `pins` are values that stay, `vetoes` flags that are not tried (those of a whole configuration together), `added`
    configurations to try, `stop_after` the number of starts after which it stops. `budget_s` replaces the budget.
    """

    pins: Flags = {}
    vetoes: tuple[Flags, ...] = ()
    added: tuple[Flags, ...] = ()
    stop_after: int | None = None
    budget_s: float | None = None


class LoggedChange(Stored, frozen=True, kw_only=True):
    """A row of the tuning log: what was changed between two sessions, its effect, and whether it was kept.

    `verdict` is null with too few runs; `likely` is what a change that is not sure most likely is. `agents` are those
    of two capacities, before and after; `agents_numbers` are these as they are shown, `2+` without an upper end, and
    `agents_detail` has their ranges.
    """

    number: int = 0
    created: str = ""
    before: str
    after: str
    what: str
    effect: str
    verdict: Literal["faster", "slower", "same", "not sure yet", "more agents", "fewer agents", "refused"] | None
    likely: Literal["faster", "slower"] | None = None
    change: float | None = None
    agents: tuple[int, int] | None = None
    agents_numbers: tuple[str, str] | None = None
    agents_detail: str = ""
    kept: Literal["kept", "reverted", ""] = ""
    note: str = ""


class ChangeLog(Stored, frozen=True, kw_only=True):
    schema: int = SCHEMA_VERSION
    changes: tuple[LoggedChange, ...] = ()


def is_env_variable(name: str) -> bool:
    """Names in capitals are environment variables, all others are flags."""
    return _VARIABLE.fullmatch(name) is not None


def is_command(target: str) -> bool:
    """An endpoint is one word: an address, or `sim:PRESET`; everything else is a command."""
    if target.startswith(SIMULATOR_PREFIX) or "://" in target:
        return False
    return len(target.split()) > 1 or ":" not in target


def parse_tune(text: str, source: str) -> TuneFile:
    tune = parse_toml(text, TuneFile, source)
    if not tune.grid and not tune.configurations and not tune.knob and tune.auto is None:
        raise BadInput("give a [grid] of flags, [[configurations]] or a [[knob]]", source=source, key="grid")
    if "{port}" in tune.url and "{port}" not in tune.command:
        raise BadInput("give the server's address, or use {port} in the command", source=source, key="url")
    live = prod(len(knob.choices) for knob in tune.knob)
    if (prod(map(len, tune.grid.values())) + len(tune.configurations)) * live > _MAX_CONFIGURATIONS:
        raise BadInput(f"more than {_MAX_CONFIGURATIONS:,} configurations", source=source, key="grid")
    for key in ("ready_within", "stop_within", "cell_within"):
        parse_seconds(getattr(tune, key), key)
    for key, values in tune.grid.items():
        if len({(type(value), value) for value in values}) < len(values):
            raise BadInput("duplicate value", source=source, key=f"grid.{key}")
    names = [*tune.grid, *{name for flags in tune.configurations for name in flags}]
    for number, knob in enumerate(tune.knob):
        where = f"knob[{number}]"
        if problem := knob.find_problem():
            raise BadInput(problem[1], source=source, key=f"{where}.{problem[0]}")
        if knob.key in names:
            raise BadInput(f"{knob.key} is named twice", source=source, key=where)
        names.append(knob.key)
        parse_seconds(knob.within, f"{where}.within")
    return tune


def parse_recipe(text: str, source: str) -> TuneRecipe:
    recipe = parse_toml(text, TuneRecipe, source)
    if not recipe.flags:
        raise BadInput("give the flags of the recipe", source=source, key="flags")
    return recipe


def configuration_key(flags: Flags) -> str:
    """A key that does not depend on the order of the flags."""
    return msgspec.json.encode(flags, order="sorted").decode()


def value_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def format_flags(flags: dict[str, Any]) -> str:
    """Return `--parallel 4 --flash-attn`, or `power 280 W`."""
    parts = [
        f"power {value} W"
        if name == POWER
        else f"{name}={value}"
        if is_env_variable(name)
        else name
        if value is True
        else f"{name} {value}"
        for name, value in flags.items()
        if value is not False
    ]
    return " ".join(parts) or "no flags"


def configuration_text(flags: Flags) -> str:
    """Name a configuration of an automatic tune, whose flags are what differs from the command."""
    return format_flags(flags) if flags else "the command as it is"
