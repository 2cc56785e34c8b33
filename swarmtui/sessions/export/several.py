"""Several sessions in one report: what each is against the first, then each in full."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.sessions.export.comparison import comparison_tables
from swarmtui.sessions.export.curves import Source, title_of
from swarmtui.sessions.export.report import FORMULAS, Report, report
from swarmtui.sessions.export.table import Table


def report_of(sources: Sequence[Source]) -> Report:
    whole = [(source.name, report(source.summary)) for source in sources]
    if len(whole) == 1:
        return whole[0][1]
    first, *others = sources
    pairs = [(other.name, compare_pair(first.summary, other.summary)) for other in others]
    beside = [
        table._replace(title=f"{table.title}: A is {first.name}, B is {name}")
        for name, pair in pairs
        for table in comparison_tables(pair)
    ]
    each = [
        table._replace(title=f"{name}: {table.title}")
        for name, one in whole
        for table in (Table("Session", ("", ""), one.facts, (False, False)), *one.tables)
    ]
    notes = [f"{name}: {note}" for name, one in whole for note in (*one.lead, *one.notes) if note != FORMULAS]
    return Report(
        title=title_of(sources),
        lead=tuple(f"{name} against {first.name}: {pair.sentence}" for name, pair in pairs),
        facts=tuple(
            (name, "; ".join(map(str, (*pair.flags, *pair.differences))) or "no difference known")
            for name, pair in pairs
        ),
        tables=(*beside, *each),
        notes=(*notes, FORMULAS),
    )
