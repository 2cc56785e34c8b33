"""Check answers against their expected content, and decide how much of their text is kept."""

from __future__ import annotations

import msgspec

from swarmtui.analysis.answers import REGEX_TIMEOUT_S, RegexTimeout, check_answer
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.workload import Task
from swarmtui.session_process.journal_queue import JournalQueue

# Characters that are kept of a checked answer if previews are on.
PREVIEW_CHARS = 400

# Limit on the text kept for counting tokens at the end; more could not be counted within a minute.
_MAX_UNCOUNTED_CHARS = 2 << 20
_CHARS_PER_ANSWER = 1_000


class AnswerChecker:
    def __init__(self, journal: JournalQueue, *, keep_text: bool, previews: bool) -> None:
        self._journal, self._keep_text, self._previews = journal, keep_text, previews
        self._timeout_logged = False

    def check(self, task: Task | None, record: Record) -> Record:
        """Add the verdict to the record of a last turn; cancelled requests get none."""
        if task is None or task.check is None or record.error == CANCELLED:
            return record
        if record.ok and record.turn < len(task.followups):
            return record
        cut = record.finish_reason == "length"
        try:
            verdict = check_answer(task.check, record.text or "", record.reasoning or "", cut=cut, failed=not record.ok)
        except RegexTimeout:
            verdict = "fail"
            if not self._timeout_logged:
                self._timeout_logged = True
                self._journal.log_event(
                    "check", f"a regular expression took more than {REGEX_TIMEOUT_S:g} s: counted as not found"
                )
        return msgspec.structs.replace(record, verdict=verdict)

    def trim_text(self, task: Task | None, record: Record) -> Record:
        if self._keep_text:
            return record
        if self._previews and task is not None and task.check is not None:
            return msgspec.structs.replace(record, text=_preview(record.text), reasoning=_preview(record.reasoning))
        return msgspec.structs.replace(record, text=None, reasoning=None)


class UncountedAnswers:
    """Answers whose tokens the server did not count, kept with their text to be counted at the end."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._chars = 0

    def add(self, record: Record) -> None:
        if record.phase == "warmup":
            return
        if record.ok and record.token_source == "chunks" and self._chars < _MAX_UNCOUNTED_CHARS:
            self._chars += len(record.text or "") + len(record.reasoning or "") + _CHARS_PER_ANSWER
            self.records.append(msgspec.structs.replace(record, chunk_us=(), chunk_tokens=None))


def _preview(text: str | None) -> str | None:
    return text[:PREVIEW_CHARS] if text else None
