"""Follow a session without a UI: show its progress, print the results, and return the exit code."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from swarmtui.analysis.compare.verdicts import DETECT
from swarmtui.cli.progress import Progress, open_progress
from swarmtui.client.follow import GRACE_S, describe_unmeasured, follow_session
from swarmtui.client.session_client import StopControl
from swarmtui.model import client_protocol
from swarmtui.model.base import BadInput, Mistakes
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
from swarmtui.text import count_noun, echo, fold

if TYPE_CHECKING:
    from swarmtui.analysis.limits.fail_if import FailCondition
    from swarmtui.cli.events import EventWriter
    from swarmtui.cli.metrics_server import MetricsAddress
    from swarmtui.model.tuning import LoggedChange
    from swarmtui.report.table import Block, Sentence

_EXIT_CODES: dict[str, int] = {
    "done": DONE, "failed": BAD_INPUT, "unusable": UNUSABLE,
    "stopped": STOPPED, "interrupted": STOPPED, "unsaved": STOPPED,
}  # fmt: skip

# What is told each message of the session process.
Observer = Callable[[client_protocol.SessionMessage], None]


class Outputs(NamedTuple):
    """Where a run is reported: as text or one JSON document on stdout, or as events there and text on stderr."""

    progress: Progress
    as_json: bool = False
    events: EventWriter | None = None
    metrics_address: MetricsAddress | None = None


def make_outputs(options: dict[str, Any], mistakes: Mistakes, *, as_json: bool, quiet: bool) -> Outputs:
    events = address = None
    if options["events"] is not None:
        from swarmtui.cli.events import open_events

        events = mistakes.catch(open_events, as_json=as_json)
    if options["metrics_port"] is not None:
        from swarmtui.cli.metrics_server import parse_metrics_address

        address = mistakes.catch(parse_metrics_address, options["metrics_port"])
    return Outputs(open_progress(sys.stderr, quiet), as_json, events, address)


def follow_run(
    request: RunRequest,
    process: StartedProcess,
    outputs: Outputs,
    *,
    limits: Sequence[FailCondition] = (),
    fail_unsure: bool = False,
    detect: float = DETECT,
    brief: bool = False,
) -> int:
    """Run a session to its end and report it, with `brief` only its answer; return the exit code of `swarmtui run`.

    `fail_unsure`: a limit that is within the interval of its figure counts as missed.
    """
    progress, events = outputs.progress, outputs.events
    begun = time.monotonic()
    with ExitStack() as stack:
        observers: list[Observer] = [events.observe] if events else []
        if outputs.metrics_address is not None:
            from swarmtui.cli.metrics_server import serve_metrics

            live, url = stack.enter_context(serve_metrics(outputs.metrics_address))
            progress.write(f"metrics: {url}")
            observers.append(live.observe)
        ended, levels = _follow(request, process, progress, observers)
    seconds = time.monotonic() - begun if brief else None
    # Everything is saved: another Ctrl-C must not suppress the table or change the exit code, if somebody reads it.
    ignore_signals_unless_stuck()
    root = Path(request.session_root)
    code = report(ended, levels, outputs, root=root, detect=detect, answer_seconds=seconds)
    if code == DONE and ended.directory:
        from swarmtui.sessions.documents import read_saved_summary

        if unmeasured := describe_unmeasured(read_saved_summary(ended.directory), request.plan):
            progress.write(f"swarmtui: {unmeasured}")
            code = UNUSABLE
        else:
            missed, unsure = _check_limits(ended.directory, request.plan, limits, outputs)
            code = MISSED if missed or (unsure and fail_unsure) else code
    if events:
        events.end(ended, code)
    return code


def follow_without_report(
    request: RunRequest, process: StartedProcess, quiet: bool, control: StopControl
) -> tuple[Ended, int]:
    """Run a session to its end without printing its results; return how it ended, and the exit code."""
    progress = open_progress(sys.stderr, quiet)
    ended, _ = _follow(request, process, progress, control=control)
    if ended.message:
        progress.write(f"swarmtui: {ended.message}")
    return ended, _exit_code(ended)


def _exit_code(ended: Ended) -> int:
    return FAULT if ended.fault else _EXIT_CODES[ended.ending]


def _follow(
    request: RunRequest,
    process: StartedProcess,
    progress: Progress,
    observers: Sequence[Observer] = (),
    control: StopControl | None = None,
) -> tuple[Ended, tuple[Level, ...]]:
    control = control or StopControl()

    def request_stop(number: int, frame: FrameType | None) -> None:
        """Print nothing here: the signal may arrive in the middle of a print."""
        control.request(GRACE_S)
        exit_if_stuck(after_s=1.0 if control.immediate else GRACE_S + 1.0)

    signal.signal(signal.SIGINT, request_stop)
    signal.signal(signal.SIGTERM, request_stop)
    saving = announced = False

    def show(message: client_protocol.SessionMessage) -> None:
        nonlocal saving
        match message:
            case client_protocol.Hello(session=session):
                for endpoint in session.endpoints if request.api == AUTO else ():
                    progress.write(f"API: {endpoint.dialect} ({PATHS[endpoint.dialect]})")
            case client_protocol.Frame(status=status):
                saving = status == "saving"
                progress.show(message)
        for observe in observers:
            observe(message)

    def announce_stop() -> None:
        nonlocal announced
        if control.requested and not announced:
            announced = True
            waiting = f"waiting up to {GRACE_S:g} s for requests in flight; press Ctrl-C again to stop at once"
            progress.write("stopping: it is being saved" if saving else f"stopping: {waiting}")

    ended, frame = follow_session(request, control, show, announce_stop, process)
    progress.clear()
    return ended, frame.levels if frame else ()


def report(
    ended: Ended,
    shown: tuple[Level, ...],
    outputs: Outputs,
    *,
    root: Path | None = None,
    detect: float = DETECT,
    answer_seconds: float | None = None,
    brief: bool = False,
) -> int:
    """Print the results of a session, and return the exit code.

    `shown` are the levels of the last frame: they are complete even if the disk was full and the summary is not.
    `root` is where the baseline is found; by default, next to the session. With `brief`, or with `answer_seconds`, the
    time that it took, only the answer is printed.
    """
    # Imported only now: no run waits for the code that renders it.
    from swarmtui.experiments.baseline import baseline_pair, use_baseline, use_pair
    from swarmtui.report.answer import quick_blocks
    from swarmtui.report.comparison import change_text, price_text
    from swarmtui.report.session import answer_blocks, finding_sentences, level_blocks, result_tables
    from swarmtui.report.table import Sentence
    from swarmtui.report.text import paint
    from swarmtui.sessions.documents import read_saved_summary, summary_json, unsaved_json
    from swarmtui.sessions.store import show_command

    progress, as_json, events = outputs.progress, outputs.as_json, outputs.events

    def show(blocks: Sequence[Block]) -> None:
        echo(paint(blocks), nl=False, err=events is not None)

    summary, directory = read_saved_summary(ended.directory), Path(ended.directory)
    if summary is not None and shown and ended.ending == "unsaved":
        summary = msgspec.structs.replace(summary, levels=shown)
    compares = summary is not None and summary.session.previous and summary.levels and ended.ending == "done"
    answers = not as_json and summary is not None and bool(answer_seconds is not None or (brief and summary.levels))
    effect = _effect(root or directory.parent, directory, outputs, detect) if compares else None
    if summary is None and shown and not as_json:
        show(level_blocks(shown))
    elif as_json:
        echo((summary_json(summary) if summary else unsaved_json(ended.ending, ended.message, shown)).decode())
    elif summary is not None and answers:
        pair = baseline_pair(directory.parent, directory, summary)
        compared, price = f"{effect.effect} ({effect.what})" if effect else "", ""
        if effect and pair:
            compared, price = f"{effect.effect} ({change_text(pair)})", price_text(pair)
        show(quick_blocks(use_pair(summary, pair), answer_seconds, show_command(directory), compared, price))
    elif summary is not None:
        learned = use_baseline(directory.parent, directory, summary)
        measured = bool(summary.levels)
        levels = level_blocks(summary.levels, summary) if measured else [_explain_no_level(ended.directory, summary)]
        tables = result_tables(summary) if measured else []
        said = [*finding_sentences(summary), *answer_blocks(learned)] if measured else []
        show([*levels, Sentence(""), *tables, *said])
    if events and summary is not None:
        events.finish(summary)
    if ended.message:
        progress.write(f"swarmtui: {ended.message}")
    if ended.directory and (answer_seconds is None or as_json):
        progress.write(f"saved: {ended.directory}")
    if effect is not None and not answers:
        progress.write(f"changed: {effect.what}")
        err = as_json or events is not None
        echo(fold(effect.effect, sys.stderr if err else sys.stdout), err=err)
    if effect is not None and events:
        events.compared(effect)
    return _exit_code(ended)


def report_earlier(ended: Ended, outputs: Outputs) -> None:
    """Print the answer of a session in one line, for the app: another one followed it, and is compared with it."""
    from swarmtui.experiments.baseline import record_baseline_verdict
    from swarmtui.experiments.groups import session_flags
    from swarmtui.report.session_list import full_answer, session_caption
    from swarmtui.report.table import Facts
    from swarmtui.report.text import paint
    from swarmtui.sessions.index import list_sessions

    directory = Path(ended.directory) if ended.directory else None
    rows = list_sessions(directory.parent) if directory else []
    row = next((row for row in rows if directory and row.id == directory.name), None)
    if directory is None or row is None or not (answer := full_answer(row)):
        report(ended, (), outputs, brief=True)
        return
    if ended.message:
        outputs.progress.write(f"swarmtui: {ended.message}")
    name = session_caption(row, session_flags(rows).get(row.id, ""))
    text = " · ".join(filter(None, (answer, name, row.id)))
    echo(paint([Facts((("Earlier", text),), answer=True)]), nl=False)
    if row.previous and ended.ending == "done":
        with suppress(BadInput):
            record_baseline_verdict(directory.parent, directory)


def _effect(root: Path, session: Path, outputs: Outputs, detect: float) -> LoggedChange | None:
    """Compare a session with its baseline, and return what was logged; say why it cannot be compared."""
    from swarmtui.experiments.baseline import record_baseline_verdict

    try:
        return record_baseline_verdict(root, session, detect=detect)
    except BadInput as error:
        outputs.progress.write(f"swarmtui: {error}")
        return None


def _explain_no_level(directory: str, summary: Summary) -> Sentence:
    """Say why a run in which requests finished has no level."""
    from swarmtui.report.table import Sentence
    from swarmtui.sessions.store import load_session

    records = load_session(Path(directory).parent, Path(directory).name).journal.records
    finished = sum(record.phase == "level" and record.error is None for record in records)
    if not finished or summary.session.plan.goal == "sweep":
        return Sentence("nothing was measured")
    requests = count_noun(finished, "request")
    return Sentence(f"no level: {requests} finished, but none while C stayed the same")


def _check_limits(directory: str, plan: Plan, limits: Sequence[FailCondition], outputs: Outputs) -> tuple[bool, bool]:
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
        outputs.progress.write(slo_sentence(summary.goodput))
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
            outputs.progress.write(f"{prefix}: {reason}")
        if outputs.events:
            outputs.events.decided(limit.text, missed=result.missed, unsure=result.unsure)
    return missed, unsure
