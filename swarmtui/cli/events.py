"""Write the events of a run to stdout, one JSON object a line (`--events jsonl`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from swarmtui.client.events import EventFeed, configuration_event
from swarmtui.model.base import BadInput
from swarmtui.model.client_protocol import Ended, SessionMessage
from swarmtui.model.events import EndEvent, EventWord, RunEvent, VerdictEvent
from swarmtui.model.session import Summary
from swarmtui.model.tuning import LoggedChange, Start, format_flags
from swarmtui.numbers import significant
from swarmtui.text import echo

if TYPE_CHECKING:
    from swarmtui.analysis.tuning.outcome import TuneOutcome
    from swarmtui.experiments.effects import TuneSummary


class EventWriter:
    def __init__(self) -> None:
        self._feed = EventFeed()

    def observe(self, message: SessionMessage | Summary | Start) -> None:
        """Write what is new in a message or the summary of a session, or a result of a tune."""
        match message:
            case Start():
                self.write(configuration_event(message))
            case Summary():
                self.finish(message)
            case _:
                for event in self._feed.observe(message):
                    self.write(event)

    def finish(self, summary: Summary) -> None:
        for event in self._feed.finish(summary):
            self.write(event)

    def compared(self, change: LoggedChange) -> None:
        """Write the verdict on a session and its baseline."""
        sentence = f"{change.what}: {change.effect}"
        self.write(VerdictEvent(about="baseline", word=change.verdict, sentence=sentence, change=change.change))

    def decided(self, condition: str, *, missed: bool, unsure: bool) -> None:
        """Write the verdict on a condition of --fail-if."""
        word: EventWord = "unsure" if unsure else "missed" if missed else "kept"
        self.write(VerdictEvent(about="fail_if", word=word, sentence=f"{condition}: {word}"))

    def end(self, ended: Ended, exit_code: int) -> None:
        state, message, directory = ended.ending, ended.message, ended.directory
        self.write(EndEvent(state=state, exit_code=exit_code, message=message, directory=directory))

    def end_tune(self, summary: TuneSummary, ended: Ended, exit_code: int) -> None:
        """Write the standing of each configuration, best first, then the end."""
        from swarmtui.experiments.effects import standing_text

        for row, standing in zip(summary.leaderboard, summary.standings, strict=True):
            if standing:
                words = standing_text(standing, summary.objective) or standing
                sentence = f"{format_flags(row.flags)}: {words}, {significant(row.out_tps)} tok/s at C={row.c}"
                self.write(VerdictEvent(about="configuration", word=standing, sentence=sentence, flags=row.flags))
        self.end(ended, exit_code)

    def tuned(self, outcome: TuneOutcome) -> None:
        """Write the verdict on the flags that an automatic tune found."""
        word, change = (outcome.decision.word, outcome.decision.change) if outcome.decision else (None, None)
        self.write(VerdictEvent(about="tune", word=word, sentence=outcome.sentence, change=change, flags=outcome.flags))

    def write(self, event: RunEvent) -> None:
        echo(msgspec.json.encode(event).decode())


def open_events(*, as_json: bool) -> EventWriter:
    """Return the writer that `--events` asks for; stdout is either lines of events or one document."""
    if as_json:
        raise BadInput("prints one document, --events one line for each event; give one of them", key="--json")
    return EventWriter()
