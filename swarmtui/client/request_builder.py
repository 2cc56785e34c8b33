"""Build a run request, for the command line and the app alike: from what the user typed, or to repeat a session."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import msgspec

from swarmtui.client.catalogue import is_listening, load_workload, simulator_presets, validate_endpoint
from swarmtui.client.choices import PlanKind, RunChoices
from swarmtui.client.config_file import check_ca_file, check_headers, merge_endpoints, read_api_key
from swarmtui.client.plan_builder import build_plan
from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.config import Config, EndpointConfig
from swarmtui.model.endpoint import (
    AUTO,
    PATHS,
    SIMULATOR_PREFIX,
    dialect_from_url,
    full_url,
    hide_urls,
    parse_address,
    show_url,
)
from swarmtui.model.hosts import parse_hosts
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.plan import Plan
from swarmtui.model.redaction import MASK, Secrets, mask_secrets
from swarmtui.model.run_request import RESTART_TIMEOUT_S, RunRequest
from swarmtui.model.session import Session, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.workload import Workload

P = ParamSpec("P")
T = TypeVar("T")

_MIN_RAY = (2, 50)
_ALWAYS_CHECKED = ("levels", "requests", "duration", "warmup", "precision", "slo", "timeout", "idle_timeout")
# Keys of errors that are not the name of a field.
_FIELDS = {"find_cliff": "plan", "endpoint": "endpoints"}


class _FieldErrors(Mistakes):
    """Errors whose keys are the fields of `RunChoices`."""

    def catch_in(self, field: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns; after an error the result is None and must not be used."""
        try:
            return work(*args, **kwargs)
        except BadInput as error:
            self.found.append(_field_error(field, error))
            return cast(T, None)

    def build_plan(self, workload: Workload, choices: RunChoices, seed: int) -> Plan | None:
        """Build the plan; after an error, look for others without the field that caused it."""
        try:
            return build_plan(workload, choices, seed)
        except BadInput as error:
            found = _field_error("plan", error)
        if str(found) in map(str, self.found):
            return None
        self.found.append(found)
        others = msgspec.structs.replace(choices, **{found.key: getattr(RunChoices(), found.key)})
        if others != choices:
            self.build_plan(workload, others, seed)
        return None


def _field_error(field: str, error: BadInput) -> BadInput:
    """Errors of the plan name the field that causes them; other keys are part of the message."""
    key = error.key.removeprefix("--").replace("-", "_")
    key = _FIELDS.get(key, key)
    if key == field or (field == "plan" and key in RunChoices.__struct_fields__):
        return BadInput(error.problem, key=key)
    return BadInput(str(error), key=field)


def build_request(choices: RunChoices, endpoints: Sequence[EndpointConfig], session_root: Path) -> RunRequest:
    """Check all choices, without a request to the endpoint, and raise all errors together; their keys are fields.

    `endpoints` are those of the choices, with their entries in config.toml.
    """
    errors = _FieldErrors()
    catch = errors.catch_in
    for configured in endpoints:
        catch("endpoints", validate_endpoint, configured.url)
    endpoint = catch("endpoints", merge_endpoints, list(endpoints)) or EndpointConfig(url="")
    urls = tuple(full_url(configured.url) for configured in endpoints)
    catch("endpoints", hide_urls, urls, Secrets())
    api = catch("api", _api, choices.api) or endpoint.api
    workload = catch("workload", load_workload, choices.workload)
    if workload is not None:
        catch("api", _check_tools, api, urls, workload.workload)
    baseline = catch("baseline", _find_baseline, session_root, choices.baseline, urls, choices.plan)
    seed = baseline.plan.seed if baseline and choices.seed is None else choices.seed
    if seed is None:
        seed = secrets.randbelow(1_000_000)
    plan = errors.build_plan(workload.workload, choices, seed) if workload is not None else None
    if workload is None:
        for field in _ALWAYS_CHECKED:  # what every load has, each by itself
            alone = msgspec.structs.replace(RunChoices(), **{field: getattr(choices, field)})
            errors.build_plan(load_workload(alone.workload).workload, alone, 0)
    if choices.ca_file is not None:
        catch("ca_file", check_ca_file, choices.ca_file)
    elif endpoint.ca_file is not None:
        catch("endpoints", check_ca_file, endpoint.ca_file)
    key_field = "api_key_env" if choices.api_key_env else "endpoints"
    api_key = catch(key_field, read_api_key, choices.api_key_env or endpoint.api_key_env)
    headers = catch("headers", _headers, choices.headers) or {}
    catch("headers", check_headers, endpoint.headers | headers)
    tags = catch("tags", lambda texts: mask_secrets(_pairs(texts)), choices.tags)
    for field in ("metrics_urls", "gpu_metrics_urls"):
        for url in getattr(choices, field):
            catch(field, _check_metrics_address, url)
    model_path = choices.model_path.strip() or endpoint.model_path
    if model_path and not Path(model_path).expanduser().exists():
        errors.found.append(BadInput(f"{model_path}: no such file or directory", key="model_path"))
    catch("hosts", check_hosts, choices.hosts)
    restart_timeout_s = catch("on_restart", _parse_restart, choices.on_restart)
    errors.raise_all()
    assert plan is not None  # else there was an error
    return RunRequest(
        endpoints=urls,
        model=(choices.model or "").strip() or endpoint.model,
        api=api,
        workload=str(Path(workload.source).resolve()),
        plan=plan,
        session_root=str(session_root),
        hosts=choices.hosts.strip(),
        secrets=Secrets(api_key=api_key, headers=endpoint.headers | headers),
        ca_file=choices.ca_file or endpoint.ca_file,
        insecure=choices.insecure or endpoint.insecure,
        keep_text=choices.keep_text,
        previews=not choices.no_previews,
        gpus=not choices.no_gpu,
        metrics_urls=choices.metrics_urls or endpoint.metrics_urls,
        gpu_metrics_urls=choices.gpu_metrics_urls or endpoint.gpu_metrics_urls,
        model_path=model_path,
        restart_timeout_s=restart_timeout_s,
        label=choices.label.strip(),
        note=choices.note.strip(),
        tags=tags,
        series=Series(kind="probe", name=",".join(map(show_url, urls))) if choices.plan == "probe" else None,
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


def _parse_restart(text: str) -> float:
    """Parse `wait`, `stop` or a time: how long a run waits for a server that went away."""
    known = {"wait": RESTART_TIMEOUT_S, "stop": 0.0}
    if text in known:
        return known[text]
    try:
        return parse_seconds(text, "on_restart")
    except BadInput:
        raise BadInput(f"{text!r} is neither wait nor stop nor a time like 90s", key="on_restart") from None


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput("expected K=V")  # without what was given: it may be a key
        pairs[name.strip()] = value
    return pairs


def _headers(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse headers; the value `$NAME` is that of the variable, which the process list does not show."""
    return {
        name: (read_api_key(value[1:]) or "") if re.fullmatch(r"\$[A-Za-z_]\w*", value) else value
        for name, value in _pairs(texts).items()
    }


def _check_metrics_address(url: str) -> None:
    if "://" not in url:
        raise BadInput(f"{show_url(url)!r} is not of the form http://HOST:PORT/metrics")
    parse_address(url)


def _find_baseline(root: Path, baseline: str | None, urls: tuple[str, ...], plan: PlanKind) -> Session | None:
    """Find the baseline before anything is measured; its seed makes both sessions send the same requests.

    `last` is the last complete session of the same endpoint and kind. A shared file is imported, so that it is found
    again.
    """
    if baseline is None:
        return None
    from swarmtui.sessions.shared_file import import_shared, is_shared_file
    from swarmtui.sessions.store import LAST, last_complete, load_session, open_session

    if is_shared_file(baseline):
        baseline = import_shared(Path(baseline), root)
    if baseline == LAST and urls:
        simulator = urls[0].removeprefix(SIMULATOR_PREFIX).partition("?")[0]
        model = next((preset.model for preset in simulator_presets() if preset.name == simulator), "")
        kind = "probe" if plan == "probe" else "capacity" if plan in ("capacity", "quick") else "run"
        embedded = urls[0].startswith(SIMULATOR_PREFIX)
        found = last_complete(root, kind, urls[0], model, embedded)
        load_session(root, LAST)  # raises an error if there is none at all
        if not found:
            raise BadInput("no complete session of this endpoint and kind of plan yet; name one of `swarmtui sessions`")
        baseline = found[0]
    loaded = open_session(root, baseline)
    if isinstance(loaded, Summary):
        return loaded.session
    return msgspec.structs.replace(loaded.journal.head.session, id=loaded.directory.name)


def repeat_request(summary: Summary, config: Config, session_root: Path) -> RunRequest:
    """Return the request that runs the plan of a session again, with the session as its baseline.

    Raise BadInput, which says what to do, if the server does not answer, or if what the session needs is not stored.
    """
    session = summary.session
    if not session.endpoints:
        raise BadInput("this session is of another tool: start a new run on the setup screen")
    urls = _addresses(summary)
    known = {full_url(one.url): one for one in config.endpoints.values()}
    endpoint = merge_endpoints([known.get(url) or EndpointConfig(url=url) for url in urls])
    first = session.endpoints[0]
    return RunRequest(
        endpoints=urls,
        model=first.model,
        api=endpoint.api or first.dialect,
        workload=_workload(session),
        plan=session.plan,
        session_root=str(session_root),
        secrets=Secrets(api_key=read_api_key(endpoint.api_key_env), headers=endpoint.headers),
        ca_file=first.ca_file,
        insecure=first.insecure,
        metrics_urls=endpoint.metrics_urls,
        gpu_metrics_urls=endpoint.gpu_metrics_urls,
        model_path=endpoint.model_path,
        # Without the label and the typed flags: the server may have been started with others since.
        tags=session.tags,
        previous=session.id,
        repeats=True,
        # The same requests, but not in the server's prefix cache.
        salt=secrets.token_hex(4),
    )


def _addresses(summary: Summary) -> tuple[str, ...]:
    """Return the endpoints: the preset of a simulator that ended with its run, or servers that answer."""
    from swarmtui.engines.simulator import simulator_address

    session = summary.session
    if session.endpoints[0].embedded:
        address = simulator_address(next((server.flags for server in summary.servers if server.flags), None))
        if address is None:
            raise BadInput("its simulator is not known: choose one on the setup screen")
        validate_endpoint(address)
        return (address,)
    for endpoint in session.endpoints:
        if not endpoint.url:
            raise BadInput("it was measured elsewhere: b compares the next runs with it")
        if MASK in endpoint.url:
            raise BadInput("a part of its address is not stored: type it on the setup screen")
        if not is_listening(endpoint.url):
            raise BadInput(f"nothing answers at {endpoint.url}: start the server first")
    return tuple(endpoint.url for endpoint in session.endpoints)


def _workload(session: Session) -> str:
    """Return the path of the workload, if it still is the one of the session."""
    from swarmtui.prompts.library import workload_digest

    try:
        found = load_workload(session.workload_file or session.workload)
    except BadInput:
        raise BadInput(f"workload {session.workload} is a file elsewhere: choose it on the setup screen") from None
    if workload_digest(found) != session.workload_digest:
        raise BadInput(f"workload {session.workload} has changed since: start a new run on the setup screen")
    return str(Path(found.source).resolve())
