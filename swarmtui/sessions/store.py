"""Find, load, summarise and remove saved sessions."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

import msgspec

from swarmtui.analysis.answer.answer import answer
from swarmtui.analysis.capacity.agents import capacity
from swarmtui.analysis.capacity.judged_levels import Visit
from swarmtui.analysis.capacity.scaling import scaling, server_slots
from swarmtui.analysis.capacity.searched import leave_missed_open, searched_goodput
from swarmtui.analysis.capacity.slo_search import search_state
from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.levels.figures import task_figures
from swarmtui.analysis.levels.flags import flag_outages
from swarmtui.analysis.levels.runs import requests_by_level, runs_by_level
from swarmtui.analysis.limits.slo import Slo, goodput, read_slo
from swarmtui.analysis.machine.by_level import add_machine_figures, level_counters
from swarmtui.analysis.machine.energy import gpu_names, session_gpus
from swarmtui.analysis.quality.checklist import publication_checklist
from swarmtui.analysis.quality.facts import session_facts
from swarmtui.analysis.quality.judge import asked_figures, judge
from swarmtui.analysis.speed_of_light.session import session_limits
from swarmtui.files import MAX_JOURNAL, open_regular, sessions_root, write_file, write_parts
from swarmtui.model.base import SCHEMA_VERSION, BadInput, Stored
from swarmtui.model.session import Event, Session, SessionState, Summary
from swarmtui.model.shared import SHARED
from swarmtui.sessions.compute_levels import levels_of
from swarmtui.sessions.documents import detail_json, read_saved_summary, summary_toml
from swarmtui.sessions.importers import import_result
from swarmtui.sessions.index import (
    INDEX,
    compared_with,
    has_indexed_summary,
    index_json,
    list_sessions,
    read_row,
    session_beside,
    session_directories,
)
from swarmtui.sessions.journal import (
    JOURNAL,
    Journal,
    collect_spools,
    discard_spools,
    is_running,
    read_journal,
    read_spooled,
    spool_files,
)
from swarmtui.sessions.marked import MARKED, marked_session
from swarmtui.sessions.saved_requests import count_saved_requests
from swarmtui.sessions.shared_file import is_shared_file, read_shared
from swarmtui.state.goals import follow_search
from swarmtui.text import count_noun

LAST = "last"
_MAX_NAMED = 5
_MAX_EARLIER = 20


class LoadedSession(Stored, frozen=True, kw_only=True):
    directory: Path
    journal: Journal


def load_session(root: Path, which: str) -> LoadedSession:
    """Load a session by id, by a unique beginning or end of it, as `last`, as `last~2`, or as `marked`.

    `last` is the last one that measured a level, and no run of an A/B test, of a tune or of probes; `last~2` is the
    second one before it that is complete and of the same endpoint and kind.
    """
    directory = root / _resolve(root, which)
    if is_imported(directory):
        raise BadInput("was shared: it has figures, but no single requests", key=directory.name)
    return LoadedSession(directory=directory, journal=read_journal(directory))


def is_imported(directory: Path) -> bool:
    return (directory / SHARED).is_file() and not (directory / JOURNAL).exists()


def open_session(root: Path, which: str) -> LoadedSession | Summary:
    """Load a saved session; of a shared file, also an imported one, there is only the summary."""
    if is_shared_file(which):
        return read_shared(Path(which))
    directory = root / _resolve(root, which)
    return read_shared(directory / SHARED) if is_imported(directory) else load_session(root, directory.name)


def read_session(root: Path, which: str) -> Summary:
    """Summarise a saved session or a shared file."""
    found = open_session(root, which)
    return summarise(found) if isinstance(found, LoadedSession) else found


def with_session_beside(root: Path, which: str) -> tuple[str, str]:
    """Return the ids of a session and of the one to compare it with, the older one first."""
    chosen = read_row(root / _resolve(root, which))
    beside = session_beside(list_sessions(root), chosen)
    if not beside:
        raise BadInput(
            f"no other session of model {chosen.model} and workload {chosen.workload}; to compare others, type "
            "`swarmtui compare ID ID` with two ids of `swarmtui sessions`",
            key=chosen.id,
        )
    return min(chosen.id, beside), max(chosen.id, beside)


def baseline_id(root: Path, directory: Path) -> str:
    """Return the session that the saved one in a directory was compared with; empty if it was compared with none.

    Whatever is said about it during the run, at its end and later is said with this one. The directory may be outside
    `root` if the disk there was full.
    """
    return compared_with(list_sessions(root), read_row(directory))


def _resolve(root: Path, which: str) -> str:
    if which == MARKED:
        if not (found := marked_session(root)):
            raise BadInput("no session is marked: b on a result in the app marks it as baseline", key=which)
        return found
    back = re.fullmatch(rf"{LAST}(?:~(\d{{1,6}}))?", which)
    return _newest_name(root, int(back.group(1) or 0)) if back else find_name(root, which)


def read_summary(root: Path, which: str) -> Summary:
    """Summarise a session, a shared file, a result file of another tool (*.json), or several pooled as A+B+C."""
    names = [which] if Path(which).is_file() else which.split("+")
    found = [import_result(Path(name)) if name.endswith(".json") else read_session(root, name) for name in names]
    return found[0] if len(found) == 1 else pool(found)


def read_for_comparison(root: Path, session_ids: Sequence[str]) -> tuple[list[Summary], list[Summary]]:
    """Return the sessions to compare, and earlier ones that show the spread between sessions."""
    summaries = [read_session(root, session_id) for session_id in session_ids]
    return summaries, earlier_sessions(root, [summary.session for summary in summaries])


def earlier_sessions(root: Path, compared: Sequence[Session]) -> list[Summary]:
    """Return the newest saved sessions of the same model and workload, before the newest of those compared.

    These themselves are not among them, so that the answer is the same before and after the newest has ended.
    """
    newest = max(session.id for session in compared)
    targets = {(endpoint.model, session.workload) for session in compared for endpoint in session.endpoints}
    given = {session.id for session in compared}
    rows = [
        row
        for row in list_sessions(root)
        if row.state == "done" and row.id < newest and row.id not in given and (row.model, row.workload) in targets
    ]
    return [found for row in rows[:_MAX_EARLIER] if (found := read_saved_summary(row.directory)) is not None]


def summarise(loaded: LoadedSession) -> Summary:
    journal = loaded.journal
    state = _state(loaded)
    message = journal.end.message if journal.end else ""
    if state == "interrupted" and not message:
        message = "interrupted; contains the requests that were saved by then"
    session = journal.head.session
    figures = levels_of(journal.records, journal.entries, session.plan.load.serial_rates, journal.entries)
    figures = add_machine_figures(
        figures, journal.stages, journal.ends, journal.telemetry, journal.records, journal.servers
    )
    levels = flag_outages(figures, journal.stages, journal.events)
    slo_text = journal.search.slo if journal.search else session.plan.slo
    slo = read_slo(slo_text)
    # Behind a load balancer, the slots of one server say nothing about the others.
    several = any(event.name == "several_servers" for event in journal.events)
    slots = None if several else server_slots(session, journal.servers)
    measured = requests_by_level(journal.records, journal.stages, journal.ends)
    visits = _search_visits(journal, slo) if slo is not None else []
    search = reduce(follow_search, journal.entries, None)
    if search is not None and search.goal == "capacity" and journal.search is not None and visits:
        # Its last entry was written before the requests that were cancelled at the end of a visit.
        search = search_state(visits, None, journal.search.alpha, search.end)
    quality = judge(
        session_facts(session, levels, journal.records, journal.telemetry, journal.quality, search),
        asked_figures(slo, searched=journal.search is not None),
    )
    counters = {level.c: level_counters(level.c, journal.stages, journal.ends, journal.telemetry) for level in levels}
    gpus = session_gpus(journal.telemetry, journal.servers)
    warmup_requests = sum(r.phase == "warmup" and not r.cancelled for r in journal.records)
    unread = f"{count_noun(journal.damaged_lines, 'line')} of the journal could not be read"
    damage = Event(t_ns=session.t0_ns, name="damaged", detail=unread)
    summary = Summary(
        schema=SCHEMA_VERSION,
        state=state,
        message=message,
        session=session,
        levels=levels,
        warmup_requests=warmup_requests,
        events=(*journal.events, *([damage] if journal.damaged_lines else [])),
        checks=publication_checklist(
            session,
            levels,
            quality,
            warmup_requests=warmup_requests,
            damaged_lines=journal.damaged_lines,
            servers=journal.servers,
        ),
        scaling=scaling(levels, slots),
        goodput=searched_goodput(goodput(levels, measured, slo), search) if slo is not None else (),
        capacity=capacity(
            slo,
            visits,
            levels,
            journal.servers,
            alpha=journal.search.alpha,
            context_tokens=journal.search.context_tokens,
            gpus=len(gpus),
            price_per_hour=session.plan.price_per_hour,
        )
        if slo is not None and journal.search is not None
        else None,
        speed_of_light=session_limits(levels, journal.servers, gpus, slots, counters, session.model_facts),
        servers=journal.servers,
        gpus=gpu_names(gpus),
        quality=quality,
        tasks=task_figures(measured),
        search=search,
    )
    found = answer(summary, slo, slo_text, counters)
    if found.disturbed:
        judged, search = leave_missed_open(summary.goodput, search, found.high)
        summary = msgspec.structs.replace(summary, goodput=judged, search=search)
    return msgspec.structs.replace(summary, answer=found)


def _search_visits(journal: Journal, slo: Slo) -> list[Visit]:
    """Return the runs after the start of the last search for the capacity."""
    search = journal.search
    if search is None:
        return []
    stages = [stage for stage in journal.stages if stage.t_ns >= search.t_ns and not stage.steered]
    numbers = {stage.number for stage in stages}
    records = [record for record in journal.records if record.stage in numbers]
    runs = [run for found in runs_by_level(records, stages, journal.ends).values() for run in found]
    return [Visit(run.c, slo, run.requests) for run in sorted(runs, key=lambda run: run.stage)]


def write_summary(directory: Path) -> Summary:
    """Derive `summary.toml`, `detail.json` and the index from the journal; the result is always the same."""
    journal_bytes = (directory / JOURNAL).stat().st_size
    loaded = LoadedSession(directory=directory, journal=read_journal(directory))
    summary = summarise(loaded)
    _write(loaded, summary, journal_bytes)
    return summary


def ensure_summary(loaded: LoadedSession) -> Summary:
    """Summarise a session, and save the summary if that has not been done, so that the list shows its figures."""
    summary = summarise(loaded)
    if summary.state != "running" and not has_indexed_summary(loaded.directory):
        # The directory may be read-only.
        with suppress(OSError):
            _write(loaded, summary, (loaded.directory / JOURNAL).stat().st_size)
    return summary


def show_command(directory: Path) -> str:
    elsewhere = "" if directory.parent == sessions_root() else f" --session-dir {shlex.quote(str(directory.parent))}"
    return f"swarmtui sessions show {directory.name}{elsewhere}"


def summary_hint(directory: Path) -> str:
    """Return the command that shows a session whose summary was not waited for."""
    return f"results: {show_command(directory)}"


def summary_error(directory: Path, error: OSError | BadInput, finished: int, counted: int = 0) -> str:
    """Return the message for a summary that could not be written, after `finished` requests."""
    why = f"{directory}: no summary: {error.strerror if isinstance(error, OSError) else error}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = f"{'free some space, then ' if full else ''}{summary_hint(directory)}"
    return f"{why}; {saved_sentence(directory, finished, counted)}: {advice}"


def saved_sentence(directory: Path, finished: int, counted: int = 0) -> str:
    """Say how many requests can be read back.

    `finished` are known to have ended, also if they were cancelled; `counted` is what the workers counted, without
    those: what they had not sent, too.
    """
    saved, cancelled = count_saved_requests(directory)
    finished = max(finished - cancelled, counted)
    if saved < finished:
        return f"{saved} of {finished} finished requests are saved"
    return f"{count_noun(saved, 'finished request is', 'finished requests are')} saved"


def removed_sentence(directory: Path, counted: int = 0) -> str:
    """Say what is left of a session whose directory was removed before its process was killed."""
    found, files = read_spooled(directory), ", ".join(map(str, spool_files(directory)))
    count = sum(not record.cancelled for record in found.values())
    share = f"{count} of {counted} finished requests are"
    all_left = count_noun(count, "finished request is", "finished requests are")
    left = f"{share if count < counted else all_left} left in {files}" if count else ""
    return f"its directory was removed: {directory}; {left or 'nothing is saved'}"


def _write(loaded: LoadedSession, summary: Summary, journal_bytes: int) -> None:
    directory = loaded.directory
    collect_spools(directory)
    write_file(directory / "summary.toml", summary_toml(summary))
    write_parts(directory / "detail.json", detail_json(summary, loaded.journal.records))
    write_file(directory / INDEX, index_json(summary, journal_bytes))


def remove_session(root: Path, which: str) -> Path:
    """Remove a session, unless it is running or the directory is not a session."""
    directory = root / find_name(root, which)
    try:
        fd = open_regular(directory / (SHARED if is_imported(directory) else JOURNAL), MAX_JOURNAL)
    except FileNotFoundError:
        raise BadInput(f"has no {JOURNAL}: not a session, not removed", source=str(directory)) from None
    except OSError as error:
        raise BadInput(f"cannot be removed: {error.strerror}", source=str(directory)) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if directory.is_symlink():
            directory.unlink()
        else:
            shutil.rmtree(directory)
        discard_spools(directory)
    except BlockingIOError:
        raise BadInput("is running; stop it first", source=directory.name) from None
    except OSError as error:
        raise BadInput(f"cannot be removed: {error.strerror}", source=error.filename or str(directory)) from None
    finally:
        os.close(fd)
    return directory


def discard_session(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _state(loaded: LoadedSession) -> SessionState:
    """An end entry decides, even while the writer still holds the lock to save the summary."""
    if loaded.journal.end is not None:
        return loaded.journal.end.state
    return "running" if is_running(loaded.directory) else "interrupted"


def last_complete(root: Path, kind: str, url: str, model: str, embedded: bool, before: str = "") -> list[str]:
    """Return the complete sessions of an endpoint and kind, newest first; only those `before` a session, if given."""
    return [
        row.id
        for row in list_sessions(root)
        if row.is_complete and row.kind == kind and row.is_at(url, model, embedded) and (not before or row.id < before)
    ]


def _newest_name(root: Path, back: int) -> str:
    """Return the newest session with a level, or without one the newest, or one before it of its endpoint and kind.

    A run of an A/B test, a start of a tune, or a probe is the last one only if there are no others.
    """
    names = [name for name in session_directories(root) if (root / name / JOURNAL).exists()]
    if not names:
        raise BadInput("no sessions yet", source=str(root))
    measured = ((name, row) for name in names if (row := read_row(root / name)).levels)
    newest, row = first = next(measured, (names[0], read_row(root / names[0])))
    if not row.stands_alone:
        newest, row = next((found for found in measured if found[1].stands_alone), first)
    if not back:
        return newest
    earlier = last_complete(root, row.kind, row.endpoint.partition(" ")[0], row.model, row.embedded, newest)
    if back > len(earlier):
        few = count_noun(len(earlier), "complete session is", "complete sessions are")
        raise BadInput(
            f"last~{back} does not exist: {few} of the same endpoint and kind as the last one; `swarmtui sessions` "
            "lists all",
            source=str(root),
        )
    return earlier[back - 1]


def find_name(root: Path, which: str) -> str:
    """Match against existing names only, so that no input leads outside `root`."""
    names = session_directories(root)
    if which in names:
        return which
    matching = [name for name in names if which and (name.startswith(which) or name.endswith(which))]
    if not matching:
        raise BadInput(f"no session of that name in {root}; `swarmtui sessions` lists them", key=which)
    if len(matching) > 1:
        some = ", ".join(matching[:_MAX_NAMED]) + (" …" if len(matching) > _MAX_NAMED else "")
        raise BadInput(f"matches {len(matching)} sessions: {some}", key=which)
    return matching[0]
