"""Answers that carry a check get their verdict here; and how much of a text goes to disk is decided here."""

from __future__ import annotations

import msgspec

from swarmtui.analysis.answers import REGEX_S, TooSlow, verdict
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.workload import Task
from swarmtui.session_process.journal_queue import Ledger

# So much of an answer with a check is kept where previews are on.
PREVIEW_CHARS = 400


class Judge:
    def __init__(self, ledger: Ledger, *, keep_text: bool, previews: bool) -> None:
        self._ledger, self._keep_text, self._previews = ledger, keep_text, previews
        self._slow = False

    def judged(self, task: Task | None, record: Record) -> Record:
        """Only the last turn is judged, and nothing that was cancelled."""
        if task is None or task.check is None or record.error == CANCELLED:
            return record
        if record.ok and record.turn < len(task.followups):
            return record
        cut = record.finish_reason == "length"
        try:
            found = verdict(task.check, record.text or "", record.reasoning or "", cut=cut, failed=not record.ok)
        except TooSlow:
            found = "fail"
            if not self._slow:
                self._slow = True
                self._ledger.note("check", f"a regular expression took more than {REGEX_S:g} s: counted as not found")
        return msgspec.structs.replace(record, verdict=found)

    def kept(self, task: Task | None, record: Record) -> Record:
        if self._keep_text:
            return record
        if self._previews and task is not None and task.check is not None:
            return msgspec.structs.replace(record, text=_begin(record.text), reasoning=_begin(record.reasoning))
        return msgspec.structs.replace(record, text=None, reasoning=None)


def _begin(text: str | None) -> str | None:
    return text[:PREVIEW_CHARS] if text else None
