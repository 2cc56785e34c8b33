"""Follow a session to its end, for programs without a screen; recover its results if its process dies."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from swarmtui.client.session_client import ConnectionLost, SessionClient, StopControl, start_session
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended, Frame, Hello, SessionMessage, Subscribe
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.model.session import Summary
from swarmtui.processes.spawn import StartedProcess
from swarmtui.text import name_errors

# How long requests in flight may take after a stop.
GRACE_S = 5.0

# Ctrl-C is handled within this time, even if the session process sends nothing.
_POLL_S = 0.1

# How long to wait for the session process to exit after its last message; less after a second Ctrl-C.
_EXIT_TIMEOUT_S, _SHORT_EXIT_TIMEOUT_S = 5.0, 0.5

# On a busy machine, workers may need this long to write what the session process had not saved.
_SPOOL_TIMEOUT_S = 5.0


class FollowedSession(NamedTuple):
    ended: Ended
    frame: Frame | None


def follow_session(
    request: RunRequest,
    control: StopControl,
    on_message: Callable[[SessionMessage], None],
    on_poll: Callable[[], None] = lambda: None,
    process: StartedProcess | None = None,
) -> FollowedSession:
    """Run a session to its end; `on_poll` is called at least ten times per second.

    `process` is a session process that was started ahead. Stop the session with `control`.
    """
    client = start_session(request, Subscribe(hz=4.0), process)
    control.attach(client)
    directory = ""
    frame: Frame | None = None
    message: SessionMessage | None = None
    try:
        while not isinstance(message, Ended):
            message = client.receive(_POLL_S)
            control.kill_if_overdue()
            on_poll()
            match message:
                case Hello(directory=directory):
                    pass
                case Frame():
                    frame = message
            if message is not None:
                on_message(message)
    except ConnectionLost:
        message = _recover(directory, frame.finished if frame else 0, client, control)
    client.close(_SHORT_EXIT_TIMEOUT_S if control.immediate else _EXIT_TIMEOUT_S)
    return FollowedSession(message, frame)


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


def describe_unmeasured(summary: Summary | None, plan: Plan) -> str:
    """Name the levels of a sweep in which nothing was measured; a search may try levels that the server refuses."""
    if summary is None:
        return ""
    empty = [level for level in summary.levels if not level.ok and level.out_tps_steady is None]
    if summary.levels and (plan.goal != "sweep" or not empty):
        return ""
    errors = Counter[str]()
    for level in empty:
        errors.update(level.error_counts)
    failed = name_errors(errors)
    why = f"every request failed: {failed}" if failed else "no request ended in time; give it a longer --duration"
    where = f" at {', '.join(level.name for level in empty)}" if empty else ""
    return f"nothing was measured{where}: {why}"
