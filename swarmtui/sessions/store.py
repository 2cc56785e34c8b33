"""Saved sessions: find, load, sum up, save the summary, remove."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.capacity.slots import server_slots
from swarmtui.analysis.compare.pool import pool
from swarmtui.analysis.levels.figures import level_figures
from swarmtui.analysis.levels.flags import flag_outages
from swarmtui.analysis.levels.runs import finished_by_level
from swarmtui.analysis.levels.serial import serial_rates
from swarmtui.analysis.levels.tasks import task_figures
from swarmtui.analysis.limits.slo import goodput, parse_slo
from swarmtui.analysis.machine.bandwidth import bandwidth_use, model_bytes_from_tags
from swarmtui.analysis.machine.by_level import add_machine_figures
from swarmtui.analysis.machine.energy import gpu_names
from swarmtui.analysis.quality.checklist import publication_checklist
from swarmtui.analysis.quality.facts import session_facts
from swarmtui.analysis.quality.judge import add_stored_lines, judge
from swarmtui.model.findings import Goodput
from swarmtui.model.record import CANCELLED
from swarmtui.model.schema import SCHEMA_VERSION, BadInput, Stored
from swarmtui.model.session import Event, Level, State, Summary
from swarmtui.sessions.documents import detail_json, summary_json, summary_toml
from swarmtui.sessions.files import sessions_root, write_parts, write_whole
from swarmtui.sessions.importers import read_foreign
from swarmtui.sessions.index import INDEX, Listed, index_json, is_indexed, list_sessions, session_names
from swarmtui.sessions.journal import JOURNAL, Journal, is_running, read_journal
from swarmtui.text import count_noun

__all__ = [
    "Listed",
    "Loaded",
    "discard",
    "figures_later",
    "list_sessions",
    "load",
    "made_up_for",
    "remove",
    "summarise",
    "summary_json",
    "unsummed",
    "write_summary",
]

LAST = "last"
_NAMED_AT_MOST = 5


class Loaded(Stored, frozen=True, kw_only=True):
    directory: Path
    journal: Journal


def load(root: Path, which: str) -> Loaded:
    """By id, by the beginning of one that fits no other, `last`, or `last~2` for the second before it."""
    back = re.fullmatch(rf"{LAST}(?:~(\d+))?", which)
    directory = root / (_newest(root, int(back.group(1) or 0)) if back else _named(root, which))
    return Loaded(directory=directory, journal=read_journal(directory))


def summarise(loaded: Loaded) -> Summary:
    journal = loaded.journal
    state = _state(loaded)
    message = journal.end.message if journal.end else ""
    if state == "interrupted" and not message:
        message = "it was cut off: what had finished by then is here"
    session = journal.head.session
    figures = level_figures(journal.records, journal.stretches, journal.ends, serial_rates(session.plan))
    figures = add_machine_figures(figures, journal.stretches, journal.ends, journal.telemetry, journal.records)
    levels = flag_outages(figures, journal.stretches, journal.events)
    quality = judge(session_facts(session, levels, journal.records, journal.telemetry, journal.trusted))
    if journal.trusted is not None:
        quality = add_stored_lines(quality, journal.trusted.lines)
    weights = model_bytes_from_tags(session.tags)
    seats = server_slots(session, journal.servers)
    warmup_requests = sum(r.phase == "warmup" and r.error != CANCELLED for r in journal.records)
    return Summary(
        schema=SCHEMA_VERSION,
        state=state,
        message=message,
        session=session,
        levels=levels,
        warmup_requests=warmup_requests,
        events=(*journal.events, *_damage(journal)),
        checks=publication_checklist(
            session,
            levels,
            quality,
            warmup_requests=warmup_requests,
            damaged_lines=journal.damaged_lines,
            servers=journal.servers,
        ),
        scaling=scaling(levels, seats),
        goodput=_goodput(journal, levels),
        bandwidth=bandwidth_use(levels, weights, seats) if weights else (),
        servers=journal.servers,
        gpus=gpu_names(journal.telemetry, journal.servers),
        quality=quality,
        tasks=task_figures(finished_by_level(journal.records, journal.stretches, journal.ends)),
    )


def _goodput(journal: Journal, levels: tuple[Level, ...]) -> tuple[Goodput, ...]:
    """Of an SLO that an older or a newer version wrote otherwise, nothing is said."""
    try:
        slo = parse_slo(journal.head.session.plan.slo)
    except BadInput:
        return ()
    return goodput(levels, finished_by_level(journal.records, journal.stretches, journal.ends), slo)


def write_summary(directory: Path) -> Summary:
    """`summary.toml`, `detail.json` and the index, derived from the journal: again and again, always the same."""
    journal_bytes = (directory / JOURNAL).stat().st_size
    loaded = Loaded(directory=directory, journal=read_journal(directory))
    summary = summarise(loaded)
    _write(loaded, summary, journal_bytes)
    return summary


def made_up_for(loaded: Loaded) -> Summary:
    """The summary, also put where it belongs if nobody had the time for it: then the list has its figures too."""
    summary = summarise(loaded)
    if summary.state != "running" and not is_indexed(loaded.directory):
        # Whoever may only read here does so.
        with suppress(OSError):
            _write(loaded, summary, (loaded.directory / JOURNAL).stat().st_size)
    return summary


def figures_later(directory: Path) -> str:
    """Where nobody waited for the summary: how people get at it."""
    elsewhere = "" if directory.parent == sessions_root() else f" --session-dir {directory.parent}"
    return f"its figures: swarmtui sessions show {directory.name}{elsewhere}"


def unsummed(directory: Path, error: OSError | BadInput) -> str:
    """Where the summary could not be written: nothing is lost by it."""
    why = f"{directory}: no summary: {error.strerror if isinstance(error, OSError) else error}"
    return f"{why}; every request is in its journal, so make room, and then {figures_later(directory)}"


def _write(loaded: Loaded, summary: Summary, journal_bytes: int) -> None:
    directory = loaded.directory
    write_whole(directory / "summary.toml", summary_toml(summary))
    write_parts(directory / "detail.json", detail_json(summary, loaded.journal.records))
    write_whole(directory / INDEX, index_json(summary, journal_bytes))


def remove(root: Path, which: str) -> Path:
    """Takes a session away, but neither one that runs nor a directory that is no session."""
    directory = root / _named(root, which)
    try:
        fd = os.open(directory / JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        raise BadInput(f"has no {JOURNAL}: not a session, so it stays", source=str(directory)) from None
    except OSError as error:
        raise BadInput(f"cannot be removed: {error.strerror}", source=str(directory)) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if directory.is_symlink():
            directory.unlink()
        else:
            shutil.rmtree(directory)
    except BlockingIOError:
        raise BadInput("is running; stop it first", source=directory.name) from None
    except OSError as error:
        raise BadInput(f"cannot be removed: {error.strerror}", source=error.filename or str(directory)) from None
    finally:
        os.close(fd)
    return directory


def discard(directory: Path) -> None:
    """Takes away what a session left that measured nothing."""
    shutil.rmtree(directory, ignore_errors=True)


def _state(loaded: Loaded) -> State:
    """An end in the journal is the last word, also while its writer still holds the lock to save the summary."""
    if loaded.journal.end is not None:
        return loaded.journal.end.state
    return "running" if is_running(loaded.directory) else "interrupted"


def _damage(journal: Journal) -> tuple[Event, ...]:
    if not journal.damaged_lines:
        return ()
    lines = "1 line" if journal.damaged_lines == 1 else f"{journal.damaged_lines} lines"
    detail = f"{lines} of the journal could not be read"
    return (Event(t_ns=journal.head.session.t0_ns, name="damaged", detail=detail),)


def _newest(root: Path, back: int) -> str:
    names = [name for name in session_names(root) if (root / name / JOURNAL).exists()]
    if back >= len(names):
        few = f"last~{back} is not there: {count_noun(len(names), 'session', 'sessions')} in all"
        raise BadInput(few if names else "no session here yet", source=str(root))
    return names[back]


def _named(root: Path, which: str) -> str:
    """Looked up among the names that are there, so that no text given leads out of `root`."""
    names = session_names(root)
    if which in names:
        return which
    fitting = [name for name in names if which and name.startswith(which)]
    if not fitting:
        raise BadInput(f"no session of that name in {root}; `swarmtui sessions` lists them", key=which)
    if len(fitting) > 1:
        some = ", ".join(fitting[:_NAMED_AT_MOST]) + (" …" if len(fitting) > _NAMED_AT_MOST else "")
        raise BadInput(f"fits {len(fitting)} sessions: {some}", key=which)
    return fitting[0]


def read_summary(root: Path, which: str) -> Summary:
    """A name that ends in .json is a file; all else is looked up among the sessions; A+B+C takes them together."""
    names = [which] if Path(which).is_file() else which.split("+")
    found = [_one(root, name) for name in names]
    return found[0] if len(found) == 1 else pool(found)


def _one(root: Path, which: str) -> Summary:
    path = Path(which)
    return read_foreign(path) if path.suffix == ".json" else summarise(load(root, which))
