"""Run an A/B test: alternate runs of two servers, or two ways to start one, until it is known which is faster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from swarmtui.analysis.compare.differences import comparison_refusals, describe_command_changes
from swarmtui.engines.command_line import redact_flags
from swarmtui.experiments.grid import LaunchCommand, launch_for_command
from swarmtui.experiments.header_effect import CacheUse, HeaderEffect, cache_use, header_effect
from swarmtui.experiments.managed_server import (
    Interrupted,
    ManagedServer,
    ServerFailed,
    free_port,
    log_redactor,
    server_environment,
)
from swarmtui.experiments.measure import FrameDisplay, Measurement, StopRequest, measure
from swarmtui.experiments.sequential import CHECKPOINTS, Decision, evaluate
from swarmtui.model.base import Stored
from swarmtui.model.endpoint import SIMULATOR_PREFIX, show_url
from swarmtui.model.plan import AgentHeader
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Level, Summary
from swarmtui.model.session_tags import Series
from swarmtui.model.tuning import LoggedChange
from swarmtui.numbers import significant

Side = Literal["A", "B"]
AbFigure = Literal["out_tps", "per_stream_tps", "ttft_s"]
AB_FIGURES: dict[AbFigure, tuple[str, Literal["higher", "lower"]]] = {
    "out_tps": ("output tok/s", "higher"),
    "per_stream_tps": ("stream tok/s", "higher"),
    "ttft_s": ("TTFT s", "lower"),
}


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


class AbRun(Stored, frozen=True, kw_only=True):
    side: Side
    value: float
    session: str
    errors: int
    cache: CacheUse | None = None


class AbResult(Stored, frozen=True, kw_only=True):
    """The runs so far. `problem` says why the test ended early; `decision` is of the last checkpoint, if any."""

    test: AbTest
    runs: tuple[AbRun, ...] = ()
    decision: Decision | None = None
    header: HeaderEffect | None = None
    problem: str = ""
    stopped: bool = False

    def values(self, side: Side) -> list[float]:
        return [run.value for run in self.runs if run.side == side]

    def cache(self, side: Side) -> list[CacheUse | None]:
        return [run.cache for run in self.runs if run.side == side]

    def sessions(self, side: Side) -> str:
        """The sessions of one side, as `swarmtui compare` takes them: ID+ID+…"""
        return "+".join(run.session for run in self.runs if run.side == side)


class AbRunner:
    """Run the test. Every run is a session of its own, so that the verdict includes the spread between sessions."""

    def __init__(
        self, test: AbTest, request: RunRequest, logs: Path, display: FrameDisplay, report: Callable[[str], None]
    ) -> None:
        self._test, self._request, self._logs = test, request, logs
        self._display, self._report = display, report
        self._first: dict[Side, Summary] = {}

    def run(self, stop: StopRequest) -> AbResult:
        """Evaluate the runs at each checkpoint until the test is done; an A/A test ends at the first."""
        test = self._test
        result = AbResult(test=msgspec.structs.replace(test, a=_shown(test.a), b=_shown(test.b)))
        for index, side in enumerate(interleaved_sides(2 * CHECKPOINTS[-1], test.seed)):
            self._report(f"run {index + 1}: {side}")
            try:
                run = self._run_once(side, index, stop)
            except Interrupted:
                return msgspec.structs.replace(result, stopped=True)
            except ServerFailed as error:
                return msgspec.structs.replace(result, problem=f"{side}: {error}")
            result = msgspec.structs.replace(result, runs=(*result.runs, run))
            self._report(f"run {index + 1}: {side} {significant(run.value)} {AB_FIGURES[test.figure][0]}")
            if refused := self._refusals():
                return msgspec.structs.replace(result, problem=f"A and B cannot be compared: {refused}")
            a, b = result.values("A"), result.values("B")
            if len(a) == len(b) and len(a) in CHECKPOINTS:
                better = AB_FIGURES[test.figure][1]
                decision = evaluate(a, b, detect=test.detect, max_runs=test.max_runs, better=better)
                kind = test.agent_header
                header = header_effect(kind, result.cache("A"), result.cache("B")) if kind else None
                result = msgspec.structs.replace(result, decision=decision, header=header)
                self._report(decision.sentence)
                if decision.done or test.aa:
                    break
        return result

    def _run_once(self, side: Side, index: int, stop: StopRequest) -> AbRun:
        target = self._test.a if side == "A" else self._test.b
        with ExitStack() as stack:
            server = None
            url = target
            if is_command(target):
                launch = launch_for_command(target, self._test.url, free_port(), f"--{side.lower()}")
                server = stack.enter_context(self._start_server(launch, side, index, stop))
                url = launch.url

            def abort_reason() -> str | None:
                return "stopped" if stop() else server.failure() if server else None

            found = measure(self._request_for(side, index, url), self._display, stop, abort_reason)
            if stop():
                raise Interrupted
            return self._read(side, found, server)

    def _start_server(self, launch: LaunchCommand, side: Side, index: int, stop: StopRequest) -> ManagedServer:
        log, within_s = self._logs / f"{index + 1}-{side}.log", self._test.stop_within_s
        secrets, passed = self._request.secrets, self._test.pass_env
        server = ManagedServer(
            launch,
            log,
            server_environment(secrets, passed),
            stop_within_s=within_s,
            immediate=stop.immediate,
            redactor=log_redactor(secrets, passed),
        )
        try:
            server.start()
            server.wait_until_ready(self._test.ready_within_s, stop)
        except ServerFailed as error:
            server.stop()
            raise ServerFailed("\n    ".join([str(error), *server.log_tail()])) from None
        except Interrupted:
            server.stop()
            raise
        return server

    def _read(self, side: Side, found: Measurement, server: ManagedServer | None) -> AbRun:
        level = found.summary.levels[-1] if found.summary and found.summary.levels else None
        value = _value(self._test.figure, level) if level else None
        if found.problem or found.summary is None or level is None or not value:
            tail = server.log_tail() if server else ()
            raise ServerFailed("\n    ".join([found.problem or "nothing was measured", *tail]))
        self._first.setdefault(side, found.summary)
        session = found.summary.session.id
        used = cache_use(Path(self._request.session_root), session, level) if self._test.agent_header else None
        return AbRun(side=side, value=value, session=session, errors=level.errors, cache=used)

    def _refusals(self) -> str:
        if len(self._first) < 2:
            return ""
        return "; ".join(why.text for why in comparison_refusals(self._first["A"], self._first["B"]))

    def _request_for(self, side: Side, index: int, url: str) -> RunRequest:
        """Each run has another seed, so that no run finds its prompts in the server's prefix cache."""
        request = self._request
        header = self._test.agent_header if side == "B" else None
        return msgspec.structs.replace(
            request,
            endpoints=(url,),
            plan=msgspec.structs.replace(request.plan, seed=request.plan.seed + index, agent_header=header),
            label=request.label or f"{self._test.name} {side}",
            series=Series(kind="ab", name=self._test.name, side=side),
        )


def interleaved_sides(count: int, seed: int) -> list[Side]:
    """ABBA or BAAB, drawn for each block of four, so that a linear drift affects both sides equally."""
    random = Random(seed)
    order: list[Side] = []
    while len(order) < count:
        order += ["A", "B", "B", "A"] if random.random() < 0.5 else ["B", "A", "A", "B"]
    return order[:count]


def _shown(target: str) -> str:
    return redact_flags(target) if is_command(target) else show_url(target)


def is_command(target: str) -> bool:
    """An endpoint is one word: an address, or `sim:PRESET`; everything else is a command."""
    if target.startswith(SIMULATOR_PREFIX) or "://" in target:
        return False
    return len(target.split()) > 1 or ":" not in target


def new_test_name() -> str:
    return f"ab-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def log_entry(result: AbResult) -> LoggedChange | None:
    """A row for the tuning log; None without a verdict, and for an A/A test."""
    test, decision = result.test, result.decision
    if decision is None or test.aa:
        return None
    return LoggedChange(
        number=0,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        before=result.sessions("A"),
        after=result.sessions("B"),
        what=_describe_change(test),
        effect=f"{AB_FIGURES[test.figure][0]}: {decision.sentence}",
        verdict=decision.word,
        change=decision.change,
    )


def _describe_change(test: AbTest) -> str:
    if test.agent_header:
        return f"agent header: {test.agent_header}"
    if is_command(test.a) and is_command(test.b):
        return describe_command_changes(test.a, test.b)
    return f"{test.a} → {test.b}"


def _value(figure: AbFigure, level: Level) -> float | None:
    if figure == "ttft_s":
        return level.ttft_s.median
    return level.per_stream_tps.mean if figure == "per_stream_tps" else level.headline_tps
