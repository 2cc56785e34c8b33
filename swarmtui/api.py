"""Measure from Python, without a screen: the commands `run`, `quick`, `capacity` and `compare` as functions.

They build the same request as the command line, run it in the same session process, and return the structs of `--json`.
They work in scripts without `if __name__ == "__main__"`, in threads, and in a notebook, whose cell they block.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from swarmtui.analysis.compare.sessions import Pair, compare_pair
from swarmtui.analysis.compare.verdicts import DETECT
from swarmtui.client.choices import RunChoices
from swarmtui.client.config_file import find_endpoints
from swarmtui.client.follow import GRACE_S, describe_unmeasured, follow_session
from swarmtui.client.request_builder import build_request
from swarmtui.client.session_client import StopControl
from swarmtui.files import sessions_root
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Frame, SessionMessage
from swarmtui.model.config import as_option
from swarmtui.model.parsing import suggest
from swarmtui.model.plan import DEFAULT_WORKLOAD
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.sessions.documents import read_saved_summary
from swarmtui.sessions.store import earlier_sessions, read_summary

Progress = Callable[[Frame], object]


class RunFailed(Exception):
    """A run that did not complete: the server could not be used, or nothing was measured.

    `result` is what was measured and saved before that, None if nothing was. `state` is how it ended: `unusable`,
    `failed`, `stopped`, `interrupted`, `unsaved`, or `done` if all requests failed.
    """

    def __init__(self, message: str, state: str, result: Summary | None) -> None:
        super().__init__(message)
        self.state, self.result = state, result


def run(
    endpoint: str | Sequence[str],
    *,
    levels: Sequence[int] | None = None,
    runs: int | None = None,
    workload: str = DEFAULT_WORKLOAD,
    progress: Progress | None = None,
    session_dir: str | PathLike[str] | None = None,
    **options: Any,
) -> Summary:
    """Benchmark an endpoint level by level, as `swarmtui run` does, and return its result.

    `endpoint` is a URL, a name in config.toml, or `sim:PRESET`; several are replicas. `options` are those of `swarmtui
    run --help` with underscores: `requests="4C"`, `duration=30` (seconds), `max_tokens=64`, `slo="ttft_p90=2s"`,
    `rate=[2, 4]`, `find_cliff=True`, `tags={"gpu": "4090"}`, `baseline="last"`. The [defaults] of config.toml do not
    apply: a script means the same on every machine.

    `progress` is called with a `Frame` four times per second; an exception in it stops the run and is raised. The
    session is saved like any other. Ctrl-C stops the run and saves it (`load("last")`), then raises KeyboardInterrupt.

        result = swarmtui.run("http://127.0.0.1:8000", levels=[1, 2, 4], runs=4)
        result.levels[0].out_tps_steady

    Raises BadInput for wrong options, RunFailed if the server could not be used.
    """
    return _run(endpoint, "sweep", progress, session_dir, workload=workload, levels=levels, runs=runs, **options)


def quick(
    endpoint: str | Sequence[str],
    *,
    slo: str = "",
    budget: float | str = 60.0,
    workload: str = DEFAULT_WORKLOAD,
    progress: Progress | None = None,
    session_dir: str | PathLike[str] | None = None,
    **options: Any,
) -> Summary:
    """Find in about a minute how many agents a server carries, as `swarmtui quick` does; see `run` for the arguments.

    `result.answer.agents` with `low` and `high` is the capacity, `answer.limit` why there are no more, and
    `answer.next` what to try. Each end of the range is 80 % sure; nothing is if `answer.quality` is doubtful.
    """
    return _run(endpoint, "quick", progress, session_dir, workload=workload, slo=slo, budget=budget, **options)


def capacity(
    endpoint: str | Sequence[str],
    *,
    slo: str = "",
    workload: str = DEFAULT_WORKLOAD,
    progress: Progress | None = None,
    session_dir: str | PathLike[str] | None = None,
    **options: Any,
) -> Summary:
    """Find the most agents that keep an SLO, as `swarmtui capacity` does: like `quick`, but 99 % sure."""
    return _run(endpoint, "capacity", progress, session_dir, workload=workload, slo=slo, **options)


def load(session: str = "last", *, session_dir: str | PathLike[str] | None = None) -> Summary:
    """Return the result of a saved session: an id, the beginning or end of one, `last`, `last~1`, or a file.

    Result files of other tools can be loaded too, as `swarmtui compare` reads them.
    """
    return read_summary(_root(session_dir), session)


def compare(
    a: Summary | str, b: Summary | str, *, detect: float = DETECT, session_dir: str | PathLike[str] | None = None
) -> Pair:
    """Compare session `b` with `a`, as `swarmtui compare` does; each is a result, or what `load` accepts.

    `verdict` is faster, slower, same, not sure yet, more agents, fewer agents, refused, or None with too few runs for
    one: give `runs=4` to both. `sentence` says it with figures; `rows` has each level.
    """
    root = _root(session_dir)
    sides = [side if isinstance(side, Summary) else read_summary(root, side) for side in (a, b)]
    history = earlier_sessions(root, [side.session for side in sides])
    return compare_pair(*sides, history=history, detect=detect)


def _run(
    endpoint: str | Sequence[str],
    plan: str,
    progress: Progress | None,
    session_dir: str | PathLike[str] | None,
    /,
    **options: Any,
) -> Summary:
    return _measure(_request(endpoint, plan, _root(session_dir), options), progress)


def _root(session_dir: str | PathLike[str] | None) -> Path:
    return Path(session_dir).resolve() if session_dir is not None else sessions_root()


def _request(endpoint: str | Sequence[str], plan: str, root: Path, options: dict[str, Any]) -> RunRequest:
    plan = "cliff" if options.pop("find_cliff", False) else plan
    for name in options:
        if name not in RunChoices.__struct_fields__ or name in ("endpoints", "plan"):
            raise BadInput(f"no such option{suggest(name, list(RunChoices.__struct_fields__), '; ')}", key=name)
    endpoints = find_endpoints((endpoint,) if isinstance(endpoint, str) else tuple(endpoint))
    if not endpoints:
        raise BadInput("name at least one", key="endpoint")
    given = {name: as_option(name, value) for name, value in options.items() if value is not None}
    given |= {"endpoints": tuple(one.url for one in endpoints), "plan": plan}
    try:
        choices = msgspec.convert(given, RunChoices)
    except msgspec.ValidationError as error:
        raise BadInput(str(error).replace("`$.", "`")) from None
    return build_request(choices, endpoints, root)


def _measure(request: RunRequest, progress: Progress | None) -> Summary:
    control = StopControl()
    raised: list[BaseException] = []

    def show(message: SessionMessage) -> None:
        if not isinstance(message, Frame) or progress is None or raised:
            return
        try:
            progress(message)
        except BaseException as error:  # noqa: BLE001 - raised below, when the session is saved
            raised.append(error)
            control.request(grace_s=0.0)

    with _stop_on_interrupt(control) as interrupted:
        ended, _ = follow_session(request, control, show)
    if raised:
        raise raised[0]
    if interrupted:
        raise KeyboardInterrupt
    result = read_saved_summary(ended.directory)
    if ended.ending != "done" or result is None:
        raise RunFailed(ended.message or ended.ending, ended.ending, result)
    if unmeasured := describe_unmeasured(result, request.plan):
        raise RunFailed(unmeasured, ended.ending, result)
    if result.session.previous:
        from swarmtui.experiments.baseline import record_baseline_verdict

        # A baseline that was removed meanwhile is no reason to lose the result.
        with suppress(BadInput):
            record_baseline_verdict(Path(request.session_root), Path(ended.directory))
    return result


@contextmanager
def _stop_on_interrupt(control: StopControl) -> Iterator[list[int]]:
    """Stop the session at Ctrl-C instead of raising in the middle of a message; other threads get no signals."""
    interrupts: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        control.request(GRACE_S)

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupts
    finally:
        # None: a handler that was not set from Python, which cannot be set again.
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
