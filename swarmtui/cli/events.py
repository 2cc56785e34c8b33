"""Turn the messages of a session into events, and write them to stdout, one JSON object a line (`--events jsonl`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from swarmtui.model.base import BadInput, copy_fields
from swarmtui.model.client_protocol import Ended, Frame, Hello, SessionMessage
from swarmtui.model.endpoint import show_url
from swarmtui.model.events import (
    AnswerEvent,
    ConfigurationEvent,
    EndEvent,
    EventWord,
    LevelEvent,
    RunEvent,
    SessionEvent,
    VerdictEvent,
    WarningEvent,
)
from swarmtui.model.plan import LevelKey, level_name
from swarmtui.model.session import Level, Session, Summary
from swarmtui.model.telemetry import QualityLine
from swarmtui.model.tuning import LoggedChange, Start, format_flags
from swarmtui.numbers import significant
from swarmtui.text import count_noun, echo

if TYPE_CHECKING:
    from swarmtui.analysis.tuning.outcome import TuneOutcome
    from swarmtui.experiments.effects import TuneSummary

_KEPT: dict[bool | None, EventWord] = {True: "kept", False: "missed", None: "unsure"}


def _print_event(event: RunEvent) -> None:
    echo(msgspec.json.encode(event).decode())


class EventWriter:
    """Writes what is new in each message, in the summary and in what is found after it: each thing once."""

    def __init__(self, write: Callable[[RunEvent], None] = _print_event) -> None:
        self._write = write
        self._begin()

    def _begin(self) -> None:
        # What has been said: the requests of each level, the verdict on it, and the codes of warnings.
        self._levels: dict[LevelKey, int] = {}
        self._words: dict[LevelKey, EventWord] = {}
        self._warned: set[tuple[str, str]] = set()

    def observe(self, message: SessionMessage | Summary | Start) -> None:
        """Write what is new in a message or the summary of a session, or a result of a tune."""
        match message:
            case Start():
                self._write(copy_fields(ConfigurationEvent, message))
            case Summary():
                self.finish(message)
            case Hello(session=session, directory=directory):
                self._begin()
                self._write(_session_event(session, directory))
            case Frame():
                for warning in message.warnings:
                    self._warn(WarningEvent(source="session", code=warning.code, sentence=warning.text))
                self._doubts(message.quality)
                self._new_levels(message.levels)
                search = message.search
                for level in search.levels if search is not None and search.goal == "capacity" else ():
                    if level.state != "unsure":  # as every level is at first
                        self._decide((level.c, None), level.good or 0, level.n, level.state)

    def finish(self, summary: Summary) -> None:
        """Say what no frame had: a slow reader gets only the newest one."""
        self._doubts(summary.quality)
        self._new_levels(summary.levels)
        for level in summary.goodput:
            self._decide(level.key, *level.met_least, _KEPT[level.kept])
        if summary.answer is not None:
            lines = tuple(line for line in summary.quality if line.state != "ok")
            self._write(AnswerEvent(session=summary.session.id, answer=summary.answer, quality=lines))

    def compared(self, change: LoggedChange) -> None:
        sentence = f"{change.what}: {change.effect}"
        self._write(VerdictEvent(about="baseline", word=change.verdict, sentence=sentence, change=change.change))

    def decided(self, condition: str, *, missed: bool, unsure: bool) -> None:
        word: EventWord = "unsure" if unsure else "missed" if missed else "kept"
        self._write(VerdictEvent(about="fail_if", word=word, sentence=f"{condition}: {word}"))

    def end(self, ended: Ended, exit_code: int) -> None:
        state, message, directory = ended.ending, ended.message, ended.directory
        self._write(EndEvent(state=state, exit_code=exit_code, message=message, directory=directory))

    def end_tune(self, summary: TuneSummary, ended: Ended, exit_code: int) -> None:
        """Write the standing of each configuration, best first, then the end."""
        from swarmtui.experiments.effects import standing_text

        for row, standing in zip(summary.leaderboard, summary.standings, strict=True):
            if standing:
                words = standing_text(standing, summary.objective) or standing
                sentence = f"{format_flags(row.flags)}: {words}, {significant(row.out_tps)} tok/s at C={row.c}"
                self._write(VerdictEvent(about="configuration", word=standing, sentence=sentence, flags=row.flags))
        self.end(ended, exit_code)

    def tuned(self, outcome: TuneOutcome) -> None:
        word, change = (outcome.decision.word, outcome.decision.change) if outcome.decision else (None, None)
        sentence, flags = outcome.sentence, outcome.flags
        self._write(VerdictEvent(about="tune", word=word, sentence=sentence, change=change, flags=flags))

    def _warn(self, warning: WarningEvent) -> None:
        if (warning.source, warning.code) not in self._warned:
            self._warned.add((warning.source, warning.code))
            self._write(warning)

    def _doubts(self, lines: Sequence[QualityLine]) -> None:
        for line in lines:
            if line.state == "doubtful":
                self._warn(WarningEvent(source="quality", code=line.code, sentence=line.sentence))

    def _new_levels(self, levels: Sequence[Level]) -> None:
        for level in levels:
            if self._levels.get(level.key) != level.n:
                self._levels[level.key] = level.n
                ttft, tps = level.ttft_s, level.per_stream_tps.mean
                fields = {"per_stream_tps": tps, "ttft_s": ttft.median, "ttft_p90_s": ttft.p90}
                self._write(copy_fields(LevelEvent, level, **fields))

    def _decide(self, key: LevelKey, good: int, n: int, word: EventWord) -> None:
        if self._words.get(key) != word:
            self._words[key] = word
            c, rate = key
            sentence = f"{level_name(key)}: {good} of {count_noun(n, 'request')} met the SLO: {word}"
            self._write(VerdictEvent(about="slo", word=word, sentence=sentence, c=c, rate=rate))


def open_events(*, as_json: bool) -> EventWriter:
    """Return the writer that `--events` asks for; stdout is either lines of events or one document."""
    if as_json:
        raise BadInput("prints one document, --events one line for each event; give one of them", key="--json")
    return EventWriter()


def _session_event(session: Session, directory: str) -> SessionEvent:
    return SessionEvent(
        session=session.id,
        directory=directory,
        endpoints=tuple(show_url(endpoint.url) for endpoint in session.endpoints),
        model=session.endpoints[0].model if session.endpoints else "",
        workload=session.workload,
        goal=session.plan.goal,
        slo=session.plan.slo,
        simulated=session.simulated,
    )
