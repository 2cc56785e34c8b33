"""`swarmtui run`: start a conductor, follow it, print what came out, and say so in the exit code."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from swarmtui.cli.progress import Progress, progress_on
from swarmtui.cli.render.machine import machine_table
from swarmtui.cli.render.table import findings_text, level_table
from swarmtui.client.client import SPOOL_S, Client, Gone, start
from swarmtui.client.interrupt import Stopping
from swarmtui.client.spawn import Started
from swarmtui.model import client_protocol as said
from swarmtui.model.plan import STEERED_ENOUGH
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput
from swarmtui.model.session import Level, Summary
from swarmtui.sessions.documents import summary_json
from swarmtui.sessions.store import figures_later, unsummed, write_summary

if TYPE_CHECKING:
    from swarmtui.analysis.limits.fail_if import Limit

DONE, MISSED, BAD_INPUT, UNUSABLE, STOPPED = 0, 1, 2, 3, 4

_EXIT: dict[said.Ending, int] = {
    "done": DONE, "failed": BAD_INPUT, "unusable": UNUSABLE, "stopped": STOPPED, "interrupted": STOPPED,
}  # fmt: skip

_GRACE_S = 5.0

# So soon is a Ctrl-C answered, also when the conductor says nothing.
_LOOK_S = 0.1

# So long may workers whose conductor was killed take to leave what they still hold on disk.

# A conductor that has said its last word is waited for, so that nothing of it is left when we end.
_CLOSED_S, _LEFT_S = 5.0, 0.5


def run(order: Order, conductor: Started, *, as_json: bool, quiet: bool, limits: Sequence[Limit] = ()) -> int:
    progress = progress_on(sys.stderr, quiet)
    ended, levels = _follow(order, conductor, progress)
    # All is saved: a Ctrl-C too many takes neither the table nor the exit code away.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = report(ended, levels, as_json=as_json, progress=progress, root=Path(order.session_root))
    if ended.directory and _missed(ended.directory, order.plan.slo, limits, progress) and code == DONE:
        return MISSED
    return code


def _hold_against(root: Path, previous: str, session: Path, progress: Progress, as_json: bool) -> None:
    """What changed since the baseline, and in one line what it gave."""
    from swarmtui.experiments.baseline import against

    try:
        told = against(root, previous, session)
    except BadInput as error:
        progress.say(f"swarmtui: {error}")
        return
    progress.say(f"changed: {told.what}")
    (sys.stderr if as_json else sys.stdout).write(f"{told.sentence}\n")


def drive(order: Order, conductor: Started, quiet: bool) -> tuple[said.Ended, int]:
    """The same without a table: how it ended, and the exit code for it."""
    progress = progress_on(sys.stderr, quiet)
    ended, _ = _follow(order, conductor, progress)
    if ended.message:
        progress.say(f"swarmtui: {ended.message}")
    return ended, _EXIT[ended.ending]


def _follow(order: Order, conductor: Started, progress: Progress) -> tuple[said.Ended, tuple[Level, ...]]:
    stopping = Stopping()

    def ask(number: int, frame: FrameType | None) -> None:
        """It may come in the middle of a print: it prints nothing itself."""
        stopping.ask(_GRACE_S)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    client = start(order, said.Subscribe(hz=4.0), conductor)
    stopping.of(client)
    follower = _Follower(progress, stopping)
    try:
        ended = follower.follow(client)
    except Gone:
        ended = _recover(follower.directory, client.how_it_ended(), stopping)
    progress.clear()
    client.close(_LEFT_S if stopping.at_once else _CLOSED_S)
    return ended, follower.levels


def _missed(directory: str, slo: str, limits: Sequence[Limit], progress: Progress) -> bool:
    """Imported only where somebody asked, so that a plain run need not wait for it."""
    summary = _read_summary(directory) if slo or limits else None
    if summary is None:
        return bool(slo or limits)
    from swarmtui.cli.judgement import missed

    return missed(summary.levels, summary.goodput, slo, limits, progress.say)


class _Follower:
    def __init__(self, progress: Progress, stopping: Stopping) -> None:
        self._progress, self._stopping = progress, stopping
        self._answered = False
        self.directory = ""
        self.levels: tuple[Level, ...] = ()

    def follow(self, client: Client) -> said.Ended:
        while True:
            message = client.next(_LOOK_S)
            self._answer()
            match message:
                case said.Hello(directory=directory):
                    self.directory = directory
                case said.Frame():
                    self.levels = message.levels
                    self._progress.show(message)
                case said.Ended():
                    return message

    def _answer(self) -> None:
        self._stopping.check()
        if self._stopping.asked and not self._answered:
            self._answered = True
            self._progress.say(f"stopping: up to {_GRACE_S:g} s for what is in flight; once more stops at once")


def _recover(directory: str, how: str, stopping: Stopping) -> said.Ended:
    """The conductor is gone: its journal and the workers' spools still hold everything that finished."""
    if not directory:
        return said.Ended("interrupted", f"the conductor {how} before the first request", "")
    figures = figures_later(Path(directory))
    if stopping.at_once:
        return said.Ended("interrupted", f"stopped at once; {figures}", directory)
    time.sleep(SPOOL_S)
    problems: list[str] = []

    def sum_up() -> None:
        try:
            write_summary(Path(directory))
        except (OSError, BadInput) as error:
            problems.append(unsummed(Path(directory), error))

    # Of a long session it takes a while, and whoever does not want to wait leaves without it.
    summing = threading.Thread(target=sum_up, daemon=True)
    summing.start()
    while summing.is_alive() and not stopping.at_once:
        summing.join(_LOOK_S)
    if problems:
        return said.Ended("failed", problems[0], directory)
    saved = figures if summing.is_alive() else "what had finished by then is saved"
    return said.Ended("interrupted", f"the conductor {how}; {saved}", directory)


def report(
    ended: said.Ended,
    seen: tuple[Level, ...] = (),
    *,
    as_json: bool,
    progress: Progress,
    root: Path | None = None,
) -> int:
    """`seen` are the levels as they were shown: what a full disk did not take is in them all the same.

    `root` is where the sessions are that this one is held against; without it they lie beside it.
    """
    summary = _read_summary(ended.directory)
    if summary is not None and seen and ended.ending == "failed":
        summary = msgspec.structs.replace(summary, levels=seen)
    if summary is None and seen and not as_json:
        sys.stdout.write(level_table(seen))
    if summary is not None:
        if as_json:
            sys.stdout.write(summary_json(summary).decode() + "\n")
        else:
            sys.stdout.write(level_table(summary.levels) if summary.levels else _no_level(ended.directory, summary))
            from swarmtui.cli.render.loads import loads_text  # not needed before the run is over

            loads = loads_text(summary)
            sys.stdout.write(f"\n{loads}" if loads else "")
            machine = machine_table(summary.levels)
            sys.stdout.write(f"\n{machine}" if machine else "")
            sys.stdout.write(f"\n{findings_text(summary)}" if summary.levels else "")
        sys.stdout.flush()
    if ended.message:
        progress.say(f"swarmtui: {ended.message}")
    if ended.directory:
        progress.say(f"saved: {ended.directory}")
    if summary is not None and summary.session.previous and summary.levels and ended.ending == "done":
        directory = Path(ended.directory)
        _hold_against(root or directory.parent, summary.session.previous, directory, progress, as_json)
    return _EXIT[ended.ending]


class _Finished(msgspec.Struct, frozen=True):
    phase: str
    error: str | None = None


class _Requests(msgspec.Struct, frozen=True):
    requests: tuple[_Finished, ...] = ()


def _no_level(directory: str, summary: Summary) -> str:
    """Says why there is no table, of a run in which requests did finish."""
    kept = msgspec.json.decode((Path(directory) / "detail.json").read_bytes(), type=_Requests)
    finished = sum(request.phase == "level" and request.error is None for request in kept.requests)
    if not finished or summary.session.plan.mode == "sweep":
        return level_table(())
    requests = "1 request" if finished == 1 else f"{finished} requests"
    return f"no level: {requests} finished, but no C was held for {STEERED_ENOUGH}·C completions\n"


def _read_summary(directory: str) -> Summary | None:
    if not directory:
        return None
    try:
        return msgspec.json.decode((Path(directory) / "detail.json").read_bytes(), type=Summary)
    except (OSError, msgspec.DecodeError):
        return None
