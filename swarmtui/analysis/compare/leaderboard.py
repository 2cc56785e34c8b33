"""List sessions with their best level and what changed from each to the next."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.capacity.scaling import headline_level
from swarmtui.analysis.compare.differences import CLIENT_DIFFERENCES, flag_differences, session_differences
from swarmtui.model.base import Stored
from swarmtui.model.plan import level_name
from swarmtui.model.session import Level, Summary


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
    best: dict[str, float] = {}
    for summary in summaries:
        model, rate = model_names(summary), _best(summary)[0]
        if rate is not None:
            best[model] = max(rate, best.get(model, 0.0))
    rows = []
    for index, summary in enumerate(summaries):
        rate, at = _best(summary)
        single = next((level for level in summary.levels if level.c == 1), None)
        rows.append(
            LeaderboardRow(
                id=summary.session.id,
                label=summary.session.label,
                model=model_names(summary),
                out_tps_alone=single.headline_tps if single else None,
                best_out_tps=rate,
                best_c=at.c if at else None,
                best_rate=at.rate if at else None,
                tpot_s=at.tpot_s.mean if at else None,
                ttft_s=at.shown_ttft_s.median if at else None,
                changes=_changes(summaries[index - 1], summary) if index else (),
                best_of_model=rate is not None and rate == best[model_names(summary)],
            )
        )
    return tuple(rows)


def _changes(before: Summary, after: Summary) -> tuple[str, ...]:
    flags = flag_differences(before, after)
    sessions = session_differences(before.session, after.session)
    others = [difference for difference in sessions if difference.code not in CLIENT_DIFFERENCES]
    return tuple(str(difference) for difference in (*flags, *others))


def _best(summary: Summary) -> tuple[float | None, Level | None]:
    level = headline_level(summary.levels, summary.scaling.reported_slots if summary.scaling else None)
    return (level.headline_tps, level) if level else (None, None)


def model_names(summary: Summary) -> str:
    return ", ".join(sorted({endpoint.model for endpoint in summary.session.endpoints}))
