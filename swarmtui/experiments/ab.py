"""Run an A/B test: alternate runs of two servers, or two ways to start one, until it is known which is faster."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.compare.differences import (
    Difference,
    command_changes,
    comparison_refusals,
    named_changes,
    side_text,
)
from swarmtui.analysis.compare.sequential import CHECKPOINTS, Decision, evaluate, interleaved_sides
from swarmtui.analysis.levels.stats import ratio
from swarmtui.analysis.machine.by_level import level_counters
from swarmtui.analysis.machine.server_counters import counter_change
from swarmtui.analysis.quality.doubts import add_doubts, disturbed_runs, find_biases, find_chances
from swarmtui.experiments.grid import launch_command
from swarmtui.experiments.managed_server import free_port
from swarmtui.experiments.runner import Runner, Trial
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.experiments.store import without_secrets
from swarmtui.model.base import BadInput, Stored, copy_fields
from swarmtui.model.plan import AgentHeader
from swarmtui.model.session import Level, Summary
from swarmtui.model.tuning import (
    AbFigure,
    AbTest,
    CacheUse,
    Experiment,
    LoggedChange,
    Side,
    Start,
    TuneFile,
    is_command,
)
from swarmtui.numbers import count, percent, significant
from swarmtui.sessions.store import load_session

AB_FIGURES: dict[AbFigure, tuple[str, Literal["higher", "lower"]]] = {
    "out_tps": ("output tok/s", "higher"),
    "per_stream_tps": ("tok/s per agent", "higher"),
    "ttft_s": ("TTFT s", "lower"),
}


class AbRun(Stored, frozen=True, kw_only=True):
    side: Side
    value: float
    session: str
    errors: int
    cache: CacheUse | None = None


class AbResult(Stored, frozen=True, kw_only=True):
    """The runs so far. `problem` says why the test ended early; `decision` is of the last checkpoint, if any.

    `note` names what disturbed some of its runs.
    """

    test: AbTest
    runs: tuple[AbRun, ...] = ()
    decision: Decision | None = None
    note: str = ""
    header: HeaderEffect | None = None
    problem: str = ""
    stopped: bool = False

    def values(self, side: Side) -> list[float]:
        return [run.value for run in self.runs if run.side == side]

    def sessions(self, side: Side) -> str:
        """The sessions of one side, as `swarmtui compare` takes them: ID+ID+…"""
        return "+".join(run.session for run in self.runs if run.side == side)


class AbRunner(Runner[AbTest]):
    """Run the test. Every run is a session of its own, so that the verdict includes the spread between sessions."""

    kind = "ab"

    _first: Summary | None = None

    def next_trial(self) -> Trial | None:
        """Evaluate the runs at each checkpoint until the test is done; an A/A test ends at the first."""
        test, found, index = self.experiment.definition, ab_result(self.experiment), len(self.experiment.starts)
        if found.decision and index == 2 * found.decision.n:
            self.report(found.decision.sentence)
        if found.problem or (found.decision and (found.decision.done or test.aa)):
            return None
        side = interleaved_sides(index + 1, test.seed)[index]
        launch, plan = ab_launch(test, side, free_port()), self.request.plan
        header = test.agent_header if side == "B" else None
        request = msgspec.structs.replace(
            self.request,
            endpoints=(launch.url if launch else test.target(side),),
            # Each run has another seed, so that no run finds its prompts in the server's prefix cache.
            plan=msgspec.structs.replace(plan, seed=plan.seed + index, agent_header=header),
            label=self.request.label or side_name(without_secrets(test), side),
        )
        return Trial(Start(side=side), f"run {index + 1}: {side}", f"{index + 1}-{side}.log", request, launch)

    def finished(self, start: Start, summary: Summary | None) -> None:
        test, index, problem = self.experiment.definition, len(self.experiment.starts), ""
        value: float | None = getattr(start, test.figure)
        if summary is None or not value:
            lines = [f"{start.side}: {start.reason or 'nothing was measured'}", *start.log]
            self.add(msgspec.structs.replace(start, state="broken"), "\n    ".join(lines))
            return
        if test.agent_header:
            used = cache_use(Path(self.request.session_root), start.session, summary.levels[-1])
            start = msgspec.structs.replace(start, cache=used)
        quality = summary.quality
        start = msgspec.structs.replace(
            start,
            doubts=find_biases(quality, of_cache=test.agent_header is not None),
            disturbances=find_chances(quality),
        )
        if self._first is None:
            self._first = summary
        elif index == 1:  # the first two runs are of both sides
            sides = (self._first, summary) if start.side == "B" else (summary, self._first)
            if refused := comparison_refusals(*sides):
                problem = f"A and B cannot be compared: {'; '.join(why.text for why in refused)}"
        self.add(start, problem)
        self.report(f"run {index + 1}: {start.side} {significant(value)} {AB_FIGURES[test.figure][0]}")


def ab_result(experiment: Experiment[AbTest]) -> AbResult:
    """Evaluate the runs at the last checkpoint that both sides have reached."""
    test = experiment.definition
    done = [start for start in experiment.starts if start.state == "done"]
    a, b = ([start for start in done if start.side == side] for side in ("A", "B"))
    n = max((checkpoint for checkpoint in CHECKPOINTS if checkpoint <= min(len(a), len(b))), default=0)
    decision = header = None
    note = ""
    if n:
        values = [[getattr(start, test.figure) for start in side[:n]] for side in (a, b)]
        better = AB_FIGURES[test.figure][1]
        counted = (*a[:n], *b[:n])
        doubts = tuple(dict.fromkeys(doubt for start in counted for doubt in start.doubts))
        note = disturbed_runs(tuple(dict.fromkeys(found for start in counted for found in start.disturbances)))
        decision = evaluate(*values, detect=test.detect, max_runs=test.max_runs, better=better, doubted=bool(doubts))
        decision = msgspec.structs.replace(decision, sentence=add_doubts(decision.sentence, doubts))
        if test.agent_header:
            header = header_effect(test.agent_header, *([start.cache for start in side[:n]] for side in (a, b)))
    return AbResult(
        test=without_secrets(test),
        runs=tuple(
            copy_fields(AbRun, start, value=getattr(start, test.figure), errors=start.errors or 0) for start in done
        ),
        decision=decision,
        note=note,
        header=header,
        problem=experiment.problem,
        stopped=experiment.status.ended == "stopped",
    )


def ab_launch(test: AbTest, side: Side, port: int | str) -> LaunchCommand | None:
    """Return how to start the server of a side; None for an endpoint. Without a URL the command must contain {port}."""
    command, option = test.target(side), f"--{side.lower()}"
    if not is_command(command):
        return None
    if test.url is None and "{port}" not in command:
        raise BadInput("put {port} into the command, or give the address of the server with --url", key=option)
    tune = TuneFile(command=command, url=test.url or "http://127.0.0.1:{port}", pass_env=test.pass_env)
    launch = launch_command(tune, {}, port, option)
    return msgspec.structs.replace(launch, ready_within_s=test.ready_within_s, stop_within_s=test.stop_within_s)


def changed_sides(test: AbTest) -> str:
    """Say how B differs from A: `--parallel 2 → 4`"""
    if test.agent_header:
        return f"agent header: {test.agent_header}"
    if test.aa:
        return f"{test.a} against itself"
    if not (is_command(test.a) and is_command(test.b)) and test.a.partition("?")[0] != test.b.partition("?")[0]:
        return f"{test.a} → {test.b}"
    return ", ".join(map(str, _changes(test))) or "no change"


def side_name(test: AbTest, side: Side) -> str:
    """Name a side by what the other one has not: `B: --parallel 4`"""
    said = side_text(_changes(test), "before" if side == "A" else "after")
    return f"{side}: {said or changed_sides(test)}"


def _changes(test: AbTest) -> Sequence[Difference]:
    """Return the flags that differ between two commands, or between two settings of a simulator."""
    if test.agent_header or test.aa:
        return ()
    if is_command(test.a) and is_command(test.b):
        return command_changes(test.a, test.b)
    (a, _, before), (b, _, after) = test.a.partition("?"), test.b.partition("?")
    sides = [dict(part.split("=", 1) for part in text.split("&") if "=" in part) for text in (before, after)]
    return named_changes(*sides) if a == b else ()


def log_entry(result: AbResult) -> LoggedChange | None:
    """A row for the tuning log; None without a verdict, and for an A/A test."""
    test, decision = result.test, result.decision
    if decision is None or test.aa:
        return None
    return LoggedChange(
        before=result.sessions("A"),
        after=result.sessions("B"),
        what=changed_sides(test),
        effect=f"{AB_FIGURES[test.figure][0]}: {decision.sentence}",
        verdict=decision.word,
        change=decision.change,
    )


# A cache that serves less than this share of the prompt tokens is off, or too small.
_NO_CACHE = 0.05
# Up to this share of the cached tokens may be missing by chance: other turns, blocks that were evicted.
_SURVIVES = 0.1

HeaderCode = Literal["unknown", "no_cache", "survives", "partly", "lost"]
_LINES: dict[AgentHeader, str] = {
    "billing": "a billing line",
    "date": "a line with session, date and time",
    "both": "a billing line and a line with session, date and time",
}


class HeaderEffect(Stored, frozen=True, kw_only=True):
    """Cache use without and with the header; null if the server reports none."""

    code: HeaderCode
    without_header: CacheUse | None
    with_header: CacheUse | None
    sentence: str


def cache_use(root: Path, session: str, level: Level) -> CacheUse | None:
    if not level.ok or not level.tokens_in:
        return None
    if level.cached_tokens is not None:
        return CacheUse(
            prompt_tokens=level.tokens_in / level.ok, cached_tokens=level.cached_tokens / level.ok, source="usage"
        )
    journal = load_session(root, session).journal
    counters = level_counters(level.c, journal.stages, journal.ends, journal.telemetry)
    samples = [sample.servers for sample in journal.telemetry if sample.servers]
    if counters.cache_queries is None and len(samples) > 1 and (change := counter_change(samples[0], samples[-1])):
        # A level of less than a second has no two samples; the session has, with its warm-up.
        counters = change.state
    if counters.cache_queries is None or counters.cache_hits is None:
        return None
    tokens = level.tokens_in / level.ok
    # A server without a cache counts no queries.
    cached = tokens * (ratio(counters.cache_hits, counters.cache_queries) or 0.0)
    return CacheUse(prompt_tokens=tokens, cached_tokens=cached, source="counters")


def header_effect(
    kind: AgentHeader, without: Sequence[CacheUse | None], with_header: Sequence[CacheUse | None]
) -> HeaderEffect:
    a, b = _mean(without), _mean(with_header)
    code, sentence = _judge(_LINES[kind], a, b)
    return HeaderEffect(code=code, without_header=a, with_header=b, sentence=sentence)


def _mean(uses: Sequence[CacheUse | None]) -> CacheUse | None:
    known = [use for use in uses if use is not None]
    if not known or len(known) < len(uses):
        return None
    return CacheUse(
        prompt_tokens=fsum(use.prompt_tokens for use in known) / len(known),
        cached_tokens=fsum(use.cached_tokens for use in known) / len(known),
        source=known[0].source,
    )


def _judge(lines: str, a: CacheUse | None, b: CacheUse | None) -> tuple[HeaderCode, str]:
    if a is None or b is None:
        return "unknown", "the server reports no cache hits; whether its cache survives the header shows in TTFT only"
    with_shares = [f"{count(use.cached_tokens)} ({percent(use.hit_rate)})" for use in (a, b)]
    served = f"{with_shares[0]} without the header and {with_shares[1]} with it"
    if a.hit_rate < _NO_CACHE:
        return "no_cache", (
            f"no prefix cache: of {count(a.prompt_tokens)} prompt tokens per request the cache served {served}. It is "
            "off, or too small for this load; the header costs nothing here"
        )
    lost = a.cached_tokens - b.cached_tokens
    of = f"of {count(b.prompt_tokens)} prompt tokens per request the cache served {served}"
    if lost <= _SURVIVES * a.cached_tokens:
        return "survives", f"the prefix cache survives {lines} in front of the system prompt: {of}"
    cause = (
        f"in front of the system prompt, {lines} changed with every request, so that what followed was not in the cache"
    )
    again = f"{count(lost)} tokens of shared prefix are computed again for each request"
    advice = "Keep the header out of the prompt, or put it after what requests share"
    if b.hit_rate > _NO_CACHE:
        rest = "what the chat template puts before the header, such as tools, is still served"
        return "partly", f"{cause}: {of}; {again}, {rest}. {advice}"
    return "lost", f"{cause}: {of}; {again}. {advice}"
