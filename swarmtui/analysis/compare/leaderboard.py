"""List sessions with their best level and what changed from each to the next."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.analysis.compare.differences import (
    CLIENT_DIFFERENCES,
    flag_differences,
    model_names,
    session_differences,
)
from swarmtui.model.base import Stored
from swarmtui.model.plan import level_name
from swarmtui.model.session import Summary


class LeaderboardRow(Stored, frozen=True, kw_only=True):
    """One session: its changes since the row before, and its best level."""

    id: str
    label: str
    model: str
    out_tps_alone: float | None
    best_out_tps: float | None
    best_c: int | None
    best_rate: float | None
    tpot_s: float | None
    ttft_s: float | None
    changes: tuple[str, ...]
    best_of_model: bool

    @property
    def best_at(self) -> str:
        """The name of the best level; empty if there is none."""
        return "" if self.best_c is None else level_name((self.best_c, self.best_rate))


def leaderboard(summaries: Sequence[Summary]) -> tuple[LeaderboardRow, ...]:
    """List the sessions in order, each with its changes since the one before."""
    models = [model_names(summary) for summary in summaries]
    tops = [headline_level(one.levels, one.scaling.reported_slots if one.scaling else None) for one in summaries]
    rates = [top.headline_tps if top else None for top in tops]
    rows = []
    for index, (summary, model, at, rate) in enumerate(zip(summaries, models, tops, rates, strict=True)):
        single = next((level for level in summary.levels if level.c == 1), None)
        of_model = [other or 0.0 for name, other in zip(models, rates, strict=True) if name == model]
        rows.append(
            LeaderboardRow(
                id=summary.session.id,
                label=summary.session.label,
                model=model,
                out_tps_alone=single.headline_tps if single else None,
                best_out_tps=rate,
                best_c=at.c if at else None,
                best_rate=at.rate if at else None,
                tpot_s=at.tpot_s.mean if at else None,
                ttft_s=at.shown_ttft_s.median if at else None,
                changes=_changes(summaries[index - 1], summary) if index else (),
                best_of_model=rate is not None and rate == max(of_model),
            )
        )
    return tuple(rows)


def _changes(before: Summary, after: Summary) -> tuple[str, ...]:
    sessions = session_differences(before.session, after.session)
    others = [difference for difference in sessions if difference.code not in CLIENT_DIFFERENCES]
    return tuple(map(str, (*flag_differences(before, after), *others)))
