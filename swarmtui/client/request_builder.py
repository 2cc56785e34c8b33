"""Build a run request from what the user typed, for the command line and the app alike."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast

import msgspec

from swarmtui.analysis.limits.slo import validate_slo
from swarmtui.client.catalogue import load_workload, validate_endpoint
from swarmtui.client.config_file import check_ca_file, check_headers, read_api_key
from swarmtui.model.base import BadInput
from swarmtui.model.config import EndpointConfig, merge_endpoints
from swarmtui.model.endpoint import AUTO, PATHS, dialect_from_url, hide_urls, parse_address, show_url
from swarmtui.model.hosts import parse_hosts
from swarmtui.model.plan import AgentHeader, Plan, parse_timeouts
from swarmtui.model.plan_options import PROBE, LoadOptions, PlanOptions, build_plan, probe_series
from swarmtui.model.redaction import Secrets
from swarmtui.model.run_request import RunRequest, parse_restart
from swarmtui.model.session import Session
from swarmtui.model.workload import Workload

P = ParamSpec("P")
T = TypeVar("T")

PlanKind = Literal["sweep", "manual", "cliff", "capacity", "open", "probe"]

_MAX_RUNS = 1000
_MIN_RAY = (2, 50)
# Keys of errors that are not the name of a field.
_FIELDS = {"find_cliff": "mode", "endpoint": "endpoints"}


class RunChoices(LoadOptions, frozen=True, kw_only=True):
    """The user's choices, as typed. An empty one falls back to the endpoint's config, then to the workload.

    `endpoints` are already looked up in config.toml; `headers` and `tags` are written K=V.
    """

    endpoints: tuple[EndpointConfig, ...]
    session_root: str
    workload: str = "coding"
    model: str | None = None
    api: str | None = None
    mode: PlanKind = "sweep"
    runs: str | None = None
    agent_header: AgentHeader | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    workers: int | None = None
    hosts: str = ""
    slo: str = ""
    max_c: int | None = None
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
    no_gpu: bool = False
    keep_text: bool = False
    no_previews: bool = False
    label: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    server_flags: str = ""
    baseline: str | None = None


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one field of `RunChoices`."""

    field: str
    message: str


class _Errors:
    """Collects the errors of all fields, so that one mistake does not hide another."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []

    def catch(self, field: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns; after an error the result is None and must not be used."""
        try:
            return work(*args, **kwargs)
        except BadInput as error:
            self.found.append(_field_error(field, error))
            return cast(T, None)


def _field_error(field: str, error: BadInput) -> FieldError:
    """Errors of the plan name the field that causes them; other keys are part of the message."""
    key = error.key.removeprefix("--").replace("-", "_")
    key = _FIELDS.get(key, key)
    if key == field or (field == "mode" and key in RunChoices.__struct_fields__):
        return FieldError(key, error.problem)
    return FieldError(field, str(error))


def build_request(choices: RunChoices) -> RunRequest | list[FieldError]:
    """Check all choices, without a request to the endpoint; return the request, or every error found."""
    errors = _Errors()
    catch = errors.catch
    for configured in choices.endpoints:
        catch("endpoints", validate_endpoint, configured.url)
    endpoint = catch("endpoints", merge_endpoints, list(choices.endpoints)) or EndpointConfig(url="")
    urls = tuple(configured.url for configured in choices.endpoints)
    catch("endpoints", hide_urls, urls, Secrets())
    api = catch("api", _api, choices.api) or endpoint.api
    workload = catch("workload", load_workload, choices.workload)
    if workload is not None:
        catch("api", _check_tools, api, urls, workload.workload)
    baseline = catch("baseline", _find_baseline, choices.session_root, choices.baseline)
    seed = baseline.plan.seed if baseline and choices.seed is None else choices.seed
    plan = catch("mode", _plan, choices, workload.workload, seed) if workload is not None else None
    if choices.ca_file is not None:
        catch("ca_file", check_ca_file, choices.ca_file)
    elif endpoint.ca_file is not None:
        catch("endpoints", check_ca_file, endpoint.ca_file)
    key_field = "api_key_env" if choices.api_key_env else "endpoints"
    api_key = catch(key_field, read_api_key, choices.api_key_env or endpoint.api_key_env)
    headers = catch("headers", _pairs, choices.headers) or {}
    catch("headers", check_headers, endpoint.headers | headers)
    tags = catch("tags", _pairs, choices.tags)
    metrics_urls = catch("metrics_urls", _metrics_addresses, choices.metrics_urls)
    gpu_metrics_urls = catch("gpu_metrics_urls", _metrics_addresses, choices.gpu_metrics_urls)
    catch("hosts", check_hosts, choices.hosts)
    restart_timeout_s = catch("on_restart", parse_restart, choices.on_restart, "on_restart")
    if errors.found or plan is None:
        return errors.found
    return RunRequest(
        endpoints=urls,
        model=(choices.model or "").strip() or endpoint.model,
        api=api,
        workload=str(Path(workload.source).resolve()),
        plan=plan,
        session_root=choices.session_root,
        hosts=choices.hosts.strip(),
        secrets=Secrets(api_key=api_key, headers=endpoint.headers | headers),
        ca_file=choices.ca_file or endpoint.ca_file,
        insecure=choices.insecure or endpoint.insecure,
        keep_text=choices.keep_text,
        previews=not choices.no_previews,
        gpus=not choices.no_gpu,
        metrics_urls=metrics_urls or endpoint.metrics_urls,
        gpu_metrics_urls=gpu_metrics_urls or endpoint.gpu_metrics_urls,
        restart_timeout_s=restart_timeout_s,
        label=choices.label.strip(),
        note=choices.note.strip(),
        tags=tags,
        series=probe_series(urls) if choices.mode == "probe" else None,
        server_flags=choices.server_flags.strip() or endpoint.server_flags,
        previous=baseline.id if baseline else "",
        # The same requests as the baseline's, but not in the server's prefix cache.
        salt=secrets.token_hex(4) if baseline else "",
    )


def check_hosts(text: str) -> None:
    """Refuse hosts that are written wrongly, and any hosts if Ray is not installed."""
    if parse_hosts(text) is None:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version("ray")
    except PackageNotFoundError:
        installed = ""
    if tuple(int(part) for part in installed.split(".")[:2] if part.isdecimal()) < _MIN_RAY:
        found = f"Ray {installed} is too old" if installed else "this needs Ray"
        raise BadInput(f"{found}; install it with: pip install 'swarmtui[ray]'", key="--hosts")


def _api(text: str | None) -> str | None:
    name = (text or "").strip() or None
    if name is not None and name != AUTO and name not in PATHS:
        raise BadInput(f"{name!r} is not one of {', '.join((*PATHS, AUTO))}")
    return name


def _check_tools(api: str | None, urls: tuple[str, ...], workload: Workload) -> None:
    """Refuse tools for an API that has none; `auto` chooses one that has them."""
    if not workload.tools or api == AUTO:
        return
    from swarmtui.loadgen.dialects import names_with_tools

    usable = names_with_tools()
    for name in [api] if api else map(dialect_from_url, urls):
        if name not in usable:
            raise BadInput(f"{name} cannot send the tools of workload {workload.name}; use {', '.join(usable)}")


def _plan(choices: RunChoices, workload: Workload, seed: int | None) -> Plan:
    return build_plan(
        workload,
        _plan_options(choices),
        max_tokens=choices.max_tokens,
        temperature=choices.temperature,
        seed=seed if seed is not None else secrets.randbelow(1_000_000),
        workers=choices.workers,
        slo=validate_slo(choices.slo),
        max_c=choices.max_c,
        price_per_hour=choices.price_per_hour,
        timeouts=parse_timeouts(choices.timeout, choices.idle_timeout),
        agent_header=choices.agent_header,
    )


def _plan_options(choices: RunChoices) -> PlanOptions:
    runs = _number_of_runs(choices.runs) if choices.runs is not None else None
    if choices.mode == "probe":
        return msgspec.structs.replace(PROBE, runs=runs)
    if choices.mode == "capacity" and not choices.slo:
        raise BadInput("enter what the agents need, for example ttft_p95=2s,stream_p5=20", key="slo")
    if choices.mode == "open" and not choices.rate:
        raise BadInput("enter the requests per second, for example 4, or 2,4,8", key="rate")
    mode = choices.mode if choices.mode in ("manual", "cliff", "capacity") else "sweep"
    load: dict[str, Any] = {name: getattr(choices, name) for name in LoadOptions.__struct_fields__}
    return PlanOptions(mode=mode, runs=runs, **load)


def _number_of_runs(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MAX_RUNS:
        raise BadInput(f"enter a number from 1 to {_MAX_RUNS}", key="runs")
    return int(text)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"expected K=V, got {name!r}")
        pairs[name.strip()] = value
    return pairs


def _metrics_addresses(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        if "://" not in url:
            raise BadInput(f"{show_url(url)!r} is not of the form http://HOST:PORT/metrics")
        parse_address(url)
    return urls


def _find_baseline(root: str, baseline: str | None) -> Session | None:
    """Find the baseline before anything is measured; its seed makes both sessions send the same requests."""
    if baseline is None:
        return None
    from swarmtui.sessions.store import load_session

    loaded = load_session(Path(root), baseline)
    return msgspec.structs.replace(loaded.journal.head.session, id=loaded.directory.name)
