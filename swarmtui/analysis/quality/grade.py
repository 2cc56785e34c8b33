"""The result of one rule of measurement quality."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.analysis.quality.quality_limits import QualityState
from swarmtui.model.telemetry import Program


class Grade(NamedTuple):
    """The result of one rule; `good_sentence` explains the state ok, `bad_sentence` any other.

    `doubtful_above` is the value from which a note would be a doubt. `programs` are those that made the host busy.
    """

    state: QualityState
    value: str
    good_sentence: str
    bad_sentence: str
    doubtful_above: str = ""
    programs: tuple[Program, ...] = ()

    def as_remark(self, why: str) -> Grade:
        """Return it as a remark, however large its value is, with the reason."""
        return self._replace(state="note", bad_sentence=f"{self.bad_sentence}; {why}", doubtful_above="")

    @property
    def sentence(self) -> str:
        """A remark says its limit: without it, it would read like a doubt."""
        limit = f"; a remark only (a doubt: more than {self.doubtful_above})" if self.doubtful_above else ""
        return {"ok": self.good_sentence, "note": self.bad_sentence + limit}.get(self.state, self.bad_sentence)
