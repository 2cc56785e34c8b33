"""`swarmtui ab`: two servers, or two ways to start one, run in turn until it is known which is faster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from swarmtui.analysis.compare.differences import refusals
from swarmtui.cli.render.table import aligned, wrapped
from swarmtui.experiments.answer import command_change
from swarmtui.experiments.grid import Launch, command_launch
from swarmtui.experiments.managed_server import Broken, Server, Stopped, free_port
from swarmtui.experiments.measure import Measured, Wish, measure
from swarmtui.experiments.schedule import Side, sides
from swarmtui.experiments.sequential import LOOKS, Decision, decide, detectable_at, next_look
from swarmtui.model.run_request import SIMULATOR, Order
from swarmtui.model.schema import Stored
from swarmtui.model.session import Level, Summary
from swarmtui.model.tuning import Change
from swarmtui.sessions.export.figures import NOTHING, amount
from swarmtui.text import plain, signed

TAG = "ab"
Figure = Literal["out_tps", "per_stream_tps", "ttft_s"]
FIGURES: dict[Figure, tuple[str, Literal["higher", "lower"]]] = {
    "out_tps": ("output tok/s", "higher"),
    "per_stream_tps": ("tok/s a stream", "higher"),
    "ttft_s": ("TTFT s", "lower"),
}


class Contest(Stored, frozen=True, kw_only=True):
    """`a` and `b` are endpoints or commands; `most` runs on each side at most. With `aa`, b is a once more."""

    name: str
    a: str
    b: str
    url: str | None = None
    figure: Figure = "out_tps"
    detect: float = 0.02
    most: int = 16
    seed: int = 0
    aa: bool = False
    ready_within_s: float = 600.0
    stop_within_s: float = 20.0


class Run(Stored, frozen=True, kw_only=True):
    side: Side
    value: float
    session: str
    errors: int


class Outcome(Stored, frozen=True, kw_only=True):
    """`problem` says why it went no further; `decision` is of the last look, null where there was none."""

    contest: Contest
    runs: tuple[Run, ...] = ()
    decision: Decision | None = None
    problem: str = ""
    stopped: bool = False

    def values(self, side: Side) -> list[float]:
        return [run.value for run in self.runs if run.side == side]


class Fight:
    """Every run is a session of its own, so that the verdict holds from one session to the next."""

    def __init__(self, contest: Contest, order: Order, logs: Path, quiet: bool, say: Callable[[str], None]) -> None:
        self._contest, self._order, self._logs, self._quiet, self._say = contest, order, logs, quiet, say
        self._first: dict[Side, Summary] = {}

    def run(self, wish: Wish) -> Outcome:
        """Looks only where the stopping rule has a look; an A/A comparison is over with the first."""
        contest = self._contest
        outcome = Outcome(contest=contest)
        for place, side in enumerate(sides(2 * LOOKS[-1], contest.seed)):
            self._say(f"run {place + 1}: {side}")
            try:
                found = self._one(side, place, wish)
            except Stopped:
                return msgspec.structs.replace(outcome, stopped=True)
            except Broken as error:
                return msgspec.structs.replace(outcome, problem=f"{side}: {error}")
            outcome = msgspec.structs.replace(outcome, runs=(*outcome.runs, found))
            self._say(f"run {place + 1}: {side} {amount(found.value)} {FIGURES[contest.figure][0]}")
            if refused := self._refused():
                return msgspec.structs.replace(outcome, problem=f"no ratio: {refused}")
            a, b = outcome.values("A"), outcome.values("B")
            if len(a) == len(b) and len(a) in LOOKS:
                better = FIGURES[contest.figure][1]
                decision = decide(a, b, detect=contest.detect, most=contest.most, better=better)
                outcome = msgspec.structs.replace(outcome, decision=decision)
                self._say(decision.sentence)
                if decision.done or contest.aa:
                    break
        return outcome

    def _one(self, side: Side, place: int, wish: Wish) -> Run:
        given = self._contest.a if side == "A" else self._contest.b
        with ExitStack() as stack:
            server = None
            url = given
            if is_command(given):
                launch = command_launch(given, self._contest.url, free_port(), f"--{side.lower()}")
                server = stack.enter_context(self._server(launch, side, place, wish))
                url = launch.url

            def over() -> str | None:
                return "stopped" if wish() else server.death() if server else None

            found = measure(self._order_for(side, place, url), self._quiet, wish, over)
            if wish():
                raise Stopped
            return self._read(side, found, server)

    def _server(self, launch: Launch, side: Side, place: int, wish: Wish) -> Server:
        log, within_s = self._logs / f"{place + 1}-{side}.log", self._contest.stop_within_s
        server = Server(launch, log, stop_within_s=within_s, at_once=wish.at_once)
        try:
            server.start()
            server.wait_until_ready(self._contest.ready_within_s, wish)
        except Broken as error:
            server.stop()
            raise Broken("\n    ".join([str(error), *server.log_tail()])) from None
        except Stopped:
            server.stop()
            raise
        return server

    def _read(self, side: Side, found: Measured, server: Server | None) -> Run:
        level = found.summary.levels[-1] if found.summary and found.summary.levels else None
        value = _value(self._contest.figure, level) if level else None
        if found.problem or found.summary is None or level is None or not value:
            tail = server.log_tail() if server else ()
            raise Broken("\n    ".join([found.problem or "nothing was measured", *tail]))
        self._first.setdefault(side, found.summary)
        return Run(side=side, value=value, session=found.summary.session.id, errors=level.errors)

    def _refused(self) -> str:
        if len(self._first) < 2:
            return ""
        return "; ".join(refusals(self._first["A"], self._first["B"]))

    def _order_for(self, side: Side, place: int, url: str) -> Order:
        """No requests twice on one server: its cache would know them."""
        return msgspec.structs.replace(
            self._order,
            endpoints=(url,),
            plan=msgspec.structs.replace(self._order.plan, seed=self._order.plan.seed + place),
            label=self._order.label or f"{self._contest.name} {side}",
            tags=self._order.tags | {TAG: self._contest.name, "side": side},
        )


def is_command(given: str) -> bool:
    """An endpoint is one word: an address, or `sim:PRESET`."""
    if given.startswith(SIMULATOR) or "://" in given:
        return False
    return len(given.split()) > 1 or ":" not in given


def new_name() -> str:
    return f"ab-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def logged(outcome: Outcome) -> Change | None:
    """A row for the tuning log, where there is a verdict on a change."""
    contest, decision = outcome.contest, outcome.decision
    if decision is None or contest.aa:
        return None
    before, after = ("+".join(run.session for run in outcome.runs if run.side == side) for side in ("A", "B"))
    return Change(
        number=0,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        before=before,
        after=after,
        what=_what(contest),
        gave=f"{FIGURES[contest.figure][0]}: {decision.sentence}",
        verdict=decision.word,
        change=decision.change,
    )


def _what(contest: Contest) -> str:
    if is_command(contest.a) and is_command(contest.b):
        return command_change(contest.a, contest.b)
    return f"{contest.a} → {contest.b}"


def outcome_text(outcome: Outcome) -> str:
    """The runs of both sides in pairs, and what may be said of them."""
    contest = outcome.contest
    a, b = outcome.values("A"), outcome.values("B")
    longest = max(len(a), len(b))
    cells = [
        [str(k + 1), amount(a[k]) if k < len(a) else NOTHING, amount(b[k]) if k < len(b) else NOTHING]
        for k in range(longest)
    ]
    what = FIGURES[contest.figure][0]
    lines = [f"A  {plain(contest.a)}", f"B  {plain(contest.b)}{' (once more)' if contest.aa else ''}"]
    lines += ["", *aligned(["run", f"A {what}", f"B {what}"], cells, right=[True] * 3)] if cells else []
    lines += ["", *(wrapped(f"{what}: {outcome.decision.sentence}") if outcome.decision else ["no verdict"])]
    if contest.aa and outcome.decision and outcome.decision.spread is not None:
        lines += wrapped(_floor(outcome.decision))
    sessions = ["+".join(run.session for run in outcome.runs if run.side == side) for side in ("A", "B")]
    if all(sessions) and not contest.aa:
        lines.append(f"swarmtui compare {' '.join(sessions)}")
    return "\n".join(lines) + "\n"


def _floor(decision: Decision) -> str:
    """`noise floor: runs of the same server differ by 1.2 % (CV) …`"""
    spread = decision.spread or 0.0
    finds = ", ".join(
        f"{n} v {n} runs find {signed(detectable_at(n, spread))}" for n in LOOKS[:5] if next_look(n) is not None
    )
    return f"noise floor: runs of the same server differ by {100 * spread:.2g} % (CV); four times in five {finds}"


def _value(figure: Figure, level: Level) -> float | None:
    if figure == "ttft_s":
        return level.ttft_s.p50 or level.ttft_s.mean
    return level.per_stream_tps.mean if figure == "per_stream_tps" else level.lead_tps
