"""Follow a session without a UI: show its progress, print the results, and return the exit code."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from swarmtui.analysis.compare.verdicts import DETECT
from swarmtui.cli.progress import Progress, open_progress
from swarmtui.client.session_client import ConnectionLost, SessionClient, StopControl, start_session
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended
from swarmtui.model.endpoint import AUTO, PATHS
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Level, Summary
from swarmtui.processes.exits import (
    BAD_INPUT,
    DONE,
    FAULT,
    MISSED,
    STOPPED,
    UNUSABLE,
    exit_if_stuck,
    ignore_signals_unless_stuck,
)
from swarmtui.processes.spawn import StartedProcess
from swarmtui.text import count_noun, echo

if TYPE_CHECKING:
    from swarmtui.analysis.limits.fail_if import FailCondition
    from swarmtui.report.table import Sentence

_EXIT_CODES: dict[str, int] = {
    "done": DONE, "failed": BAD_INPUT, "unusable": UNUSABLE,
    "stopped": STOPPED, "interrupted": STOPPED, "unsaved": STOPPED,
}  # fmt: skip

_GRACE_S = 5.0

# Ctrl-C is handled within this time, even if the session process sends nothing.
_POLL_S = 0.1

# How long to wait for the session process to exit after its last message; less after a second Ctrl-C.
_EXIT_TIMEOUT_S, _SHORT_EXIT_TIMEOUT_S = 5.0, 0.5


# On a busy machine, workers may need this long to write what the session process had not saved.
_SPOOL_TIMEOUT_S = 5.0


def follow_run(
    request: RunRequest,
    process: StartedProcess,
    *,
    as_json: bool,
    quiet: bool,
    limits: Sequence[FailCondition] = (),
    fail_unsure: bool = False,
    detect: float = DETECT,
    brief: bool = False,
) -> int:
    """Run a session to its end and report it, with `brief` only its answer; return the exit code of `swarmtui run`.

    `fail_unsure`: a limit that is within the interval of its figure counts as missed.
    """
    progress = open_progress(sys.stderr, quiet)
    begun = time.monotonic()
    ended, levels = _follow(request, process, progress)
    seconds = time.monotonic() - begun if brief else None
    # Everything is saved: another Ctrl-C must not suppress the table or change the exit code, if somebody reads it.
    ignore_signals_unless_stuck()
    root = Path(request.session_root)
    code = report(ended, levels, as_json=as_json, progress=progress, root=root, detect=detect, answer_seconds=seconds)
    if code != DONE or not ended.directory:
        return code
    if unmeasured := _describe_unmeasured(ended.directory, request.plan):
        progress.write(f"swarmtui: {unmeasured}")
        return UNUSABLE
    missed, unsure = _check_limits(ended.directory, request.plan, limits, progress)
    return MISSED if missed or (unsure and fail_unsure) else code


def follow_without_report(request: RunRequest, process: StartedProcess, quiet: bool) -> tuple[Ended, int]:
    """Run a session to its end without printing its results; return how it ended, and the exit code."""
    progress = open_progress(sys.stderr, quiet)
    ended, _ = _follow(request, process, progress)
    if ended.message:
        progress.write(f"swarmtui: {ended.message}")
    return ended, _exit_code(ended)


def _exit_code(ended: Ended) -> int:
    return FAULT if ended.fault else _EXIT_CODES[ended.ending]


def _follow(request: RunRequest, process: StartedProcess, progress: Progress) -> tuple[Ended, tuple[Level, ...]]:
    control = StopControl()

    def request_stop(number: int, frame: FrameType | None) -> None:
        """Print nothing here: the signal may arrive in the middle of a print."""
        control.request(_GRACE_S)
        exit_if_stuck(after_s=1.0 if control.immediate else _GRACE_S + 1.0)

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)
    client = start_session(request, client_protocol.Subscribe(hz=4.0), process)
    control.attach(client)
    directory, message, announced = "", None, False
    frame: client_protocol.Frame | None = None
    try:
        while not isinstance(message, Ended):
            message = client.receive(_POLL_S)
            control.kill_if_overdue()
            if control.requested and not announced:
                announced = True
                waiting = f"waiting up to {_GRACE_S:g} s for requests in flight; press Ctrl-C again to stop at once"
                saving = frame is not None and frame.status == "saving"
                progress.write("stopping: it is being saved" if saving else f"stopping: {waiting}")
            match message:
                case client_protocol.Hello(directory=directory, session=session):
                    for endpoint in session.endpoints if request.api == AUTO else ():
                        progress.write(f"API: {endpoint.dialect} ({PATHS[endpoint.dialect]})")
                case client_protocol.Frame() as frame:
                    progress.show(frame)
    except ConnectionLost:
        message = _recover(directory, frame.finished if frame else 0, client, control)
    progress.clear()
    client.close(_SHORT_EXIT_TIMEOUT_S if control.immediate else _EXIT_TIMEOUT_S)
    return message, frame.levels if frame else ()


def _recover(directory: str, finished: int, client: SessionClient, control: StopControl) -> Ended:
    """Summarise the session after its process died: the journal and the workers' spool files hold what finished.

    `finished` is how many requests the session process had reported.
    """
    from swarmtui.sessions.journal import has_journal
    from swarmtui.sessions.store import removed_sentence, saved_sentence, summary_error, summary_hint, write_summary

    cause = f"the session process {client.exit_description()}"
    if not directory:
        return Ended("interrupted", f"{cause} before the first request", "")
    hint = summary_hint(Path(directory))
    if control.immediate:
        return Ended("interrupted", f"stopped at once; {hint}", directory)
    found: list[Ended] = []

    def summarise() -> None:
        deadline = time.monotonic() + _SPOOL_TIMEOUT_S
        while client.has_workers() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        counted = client.finished_requests()
        if not has_journal(Path(directory)):
            found.append(Ended("unsaved", f"{cause}; {removed_sentence(Path(directory), counted)}", ""))
            return
        try:
            write_summary(Path(directory))
        except (OSError, BadInput) as error:
            why = summary_error(Path(directory), error, finished, counted)
            found.append(Ended("unsaved", f"{cause}; {why}", directory))
        else:
            saved = saved_sentence(Path(directory), finished, counted)
            found.append(Ended("interrupted", f"{cause}; {saved}", directory))

    # Reading a long session takes a while, and a slow disk longer; a second Ctrl-C exits without waiting for it.
    thread = threading.Thread(target=summarise, daemon=True)
    thread.start()
    while thread.is_alive() and not control.immediate:
        thread.join(_POLL_S)
    return found[0] if found else Ended("interrupted", f"{cause}; {hint}", directory)


def report(
    ended: Ended,
    shown: tuple[Level, ...] = (),
    *,
    as_json: bool,
    progress: Progress,
    root: Path | None = None,
    detect: float = DETECT,
    answer_seconds: float | None = None,
    brief: bool = False,
) -> int:
    """Print the results of a session, and return the exit code.

    `shown` are the levels of the last frame: they are complete even if the disk was full and the summary is not.
    `root` is where the baseline is found; by default, next to the session. With `answer_seconds`, the time that it
    took, only the answer is printed; `brief`: only the levels and the answer.
    """
    # Imported only now: no run waits for the code that renders it.
    from swarmtui.report.answer import quick_blocks
    from swarmtui.report.session import answer_blocks, finding_sentences, level_blocks, result_tables
    from swarmtui.report.table import Sentence
    from swarmtui.report.text import paint
    from swarmtui.sessions.documents import read_saved_summary, summary_json, unsaved_json
    from swarmtui.sessions.store import show_command

    summary = read_saved_summary(ended.directory)
    if summary is not None and shown and ended.ending == "unsaved":
        summary = msgspec.structs.replace(summary, levels=shown)
    if summary is None and shown and not as_json:
        echo(paint(level_blocks(shown)), nl=False)
    elif as_json:
        echo((summary_json(summary) if summary else unsaved_json(ended.ending, ended.message, shown)).decode())
    elif summary is not None and answer_seconds is not None:
        echo(paint(quick_blocks(summary, answer_seconds, show_command(Path(ended.directory)))), nl=False)
    elif summary is not None:
        measured = bool(summary.levels)
        levels = level_blocks(summary.levels, summary) if measured else [_explain_no_level(ended.directory, summary)]
        tables = [] if brief else result_tables(summary)
        findings = [] if brief else finding_sentences(summary)
        said = [*findings, *answer_blocks(summary)] if measured else []
        echo(paint([*levels, Sentence(""), *tables, *said]), nl=False)
    if ended.message:
        progress.write(f"swarmtui: {ended.message}")
    if ended.directory and (answer_seconds is None or as_json):
        progress.write(f"saved: {ended.directory}")
    if summary is not None and summary.session.previous and summary.levels and ended.ending == "done":
        directory = Path(ended.directory)
        baseline = summary.session.previous
        _compare_with_baseline(root or directory.parent, baseline, directory, progress, as_json, detect)
    return _exit_code(ended)


def _compare_with_baseline(
    root: Path, baseline: str, session: Path, progress: Progress, as_json: bool, detect: float
) -> None:
    """Print what changed since the baseline, and the verdict."""
    from swarmtui.experiments.baseline import record_baseline_verdict

    try:
        found = record_baseline_verdict(root, baseline, session, detect)
    except BadInput as error:
        progress.write(f"swarmtui: {error}")
        return
    progress.write(f"changed: {found.what}")
    echo(found.effect, err=as_json)


def _explain_no_level(directory: str, summary: Summary) -> Sentence:
    """Say why a run in which requests finished has no level."""
    from swarmtui.report.table import Sentence
    from swarmtui.sessions.store import load_session

    records = load_session(Path(directory).parent, Path(directory).name).journal.records
    finished = sum(record.phase == "level" and record.error is None for record in records)
    if not finished or summary.session.plan.goal == "sweep":
        return Sentence("nothing was measured")
    requests = count_noun(finished, "request", "requests")
    return Sentence(f"no level: {requests} finished, but none while C stayed the same")


def _describe_unmeasured(directory: str, plan: Plan) -> str:
    """Name the levels of a sweep in which nothing was measured; a search may try levels that the server refuses."""
    from swarmtui.sessions.documents import read_saved_summary

    summary = read_saved_summary(directory)
    if summary is None:
        return ""
    empty = [level for level in summary.levels if not level.ok and level.out_tps_steady is None]
    if summary.levels and (plan.goal != "sweep" or not empty):
        return ""
    errors = Counter[str]()
    for level in empty:
        errors.update(level.error_counts)
    failed = ", ".join(f"{name} {count}" for name, count in errors.most_common())
    why = f"every request failed: {failed}" if failed else "no request ended in time; give it a longer --duration"
    where = f" at {', '.join(level.name for level in empty)}" if empty else ""
    return f"nothing was measured{where}: {why}"


def _check_limits(directory: str, plan: Plan, limits: Sequence[FailCondition], progress: Progress) -> tuple[bool, bool]:
    """Report which limits of --slo and --fail-if were missed, and which cannot be decided; return if there are any.

    One that cannot be evaluated counts as missed. A search for the capacity misses its limit if not even one agent
    keeps it.
    """
    if not plan.slo and not limits:
        return False, False
    from swarmtui.sessions.documents import read_saved_summary

    summary = read_saved_summary(directory)
    if summary is None:
        return True, False
    if plan.goal == "capacity":
        return summary.capacity is None or not summary.capacity.agents, False
    from swarmtui.analysis.limits.slo import slo_sentence

    missed = unsure = False
    if plan.slo:
        progress.write(slo_sentence(summary.goodput))
        missed = not summary.goodput or not all(level.kept for level in summary.goodput)
    for limit in limits:
        result = limit.evaluate(summary.levels)
        prefix = ""
        if result.unsure:
            unsure, prefix = True, "warning: not sure, the limit is within the interval (--precision narrows it)"
        elif result.true is None:
            prefix = "cannot be evaluated, which counts as missed (more --requests, or FIGURE@C)"
        elif result.true:
            prefix = "missed"
        missed = missed or result.missed
        for reason in (result.because or (limit.text,)) if prefix else ():
            progress.write(f"{prefix}: {reason}")
    return missed, unsure
