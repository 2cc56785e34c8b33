"""Export a report as one HTML file: no network, no script, dark and light, readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swarmtui.report.chart import Chart
from swarmtui.report.charts import PICTURE, SessionData, build_charts
from swarmtui.report.session import build_report
from swarmtui.report.svg import (
    DARK_PAGE,
    HEIGHT,
    LIGHT_PAGE,
    WIDTH,
    draw_chart,
    draw_key,
    draw_stacked,
    escape,
    style_sheet,
)
from swarmtui.report.table import Block, Cell, Code, Column, Sentence, Table

_CLASSES: dict[Code | None, str] = {
    "ok": "ok", "faster": "ok", "missed": "bad", "slower": "bad", "unknown": "doubt", "not applicable": "unknown",
    "same": "unknown", "unsure": "unknown", "refused": "bad", "likely faster": "doubt", "likely slower": "doubt",
}  # fmt: skip

_LAYOUT = """\
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:72rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 .6rem}h2{font-size:1.1rem;margin:1.8rem 0 .5rem}
.answer{font-size:1.45rem;line-height:1.3;font-weight:600;margin:.2rem 0 1rem;max-width:48rem}
.lead{font-weight:600;margin:.3rem 0}#curve{max-width:60rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}dt{color:var(--dim)}dd{margin:0}
.scroll{overflow-x:auto;border:1px solid var(--rule);border-radius:6px;background:var(--card)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.35rem .7rem;text-align:left;border-bottom:1px solid var(--rule);overflow-wrap:normal}
tr:last-child td{border-bottom:0}th{color:var(--dim);font-weight:600;vertical-align:bottom}
.n{text-align:right}td.n{white-space:nowrap}
td.ok{color:var(--good);white-space:nowrap}td.bad{color:var(--bad);font-weight:600;white-space:nowrap}
td.unknown{color:var(--dim);white-space:nowrap}td.doubt{color:var(--queue);white-space:nowrap}
pre{white-space:pre-wrap;padding:.5rem .8rem;border:1px solid var(--rule);border-radius:6px;background:var(--card)}
td.bar{font-family:monospace;white-space:nowrap}
.note,.notes{color:var(--dim);font-size:.88rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem;grid-auto-rows:1fr}
figure{margin:0;padding:.8rem;border:1px solid var(--rule);border-radius:6px;background:var(--card);min-width:0}
figcaption{font-weight:600;margin-bottom:.3rem}.chart{width:100%;height:auto;display:block}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.3rem 0 0;padding:0;font-size:.88rem}
.key{width:34px;height:12px;margin-right:.4rem;vertical-align:middle}
@media (max-width:36rem){body{padding:.8rem;font-size:15px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}
th,td{padding:.3rem .45rem}svg text{font-size:16px}
.words thead{display:none}.words tr,.words td{display:block}
.words tr{border-bottom:1px solid var(--rule);padding:.3rem 0}
.words td{border:0;padding:.1rem .6rem}.words td[data-name]::before{content:attr(data-name) ": ";color:var(--dim)}}
"""


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


_STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT_PAGE)}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK_PAGE)}}}}}\n"
    + style_sheet({name: f"var(--{name})" for name in LIGHT_PAGE})
    + _LAYOUT
)


def render_html(sessions: Sequence[SessionData]) -> bytes:
    report = build_report(sessions)
    charts = build_charts(sessions)
    picture = [chart for chart in charts if chart.name in PICTURE]
    others = [chart for chart in charts if chart.name not in PICTURE]
    parts = (
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="answer">{escape(report.headline)}</p>' if report.headline else "",
        _picture(picture) if picture else "",
        _facts(report.answer),
        *(f'<p class="lead">{escape(line)}</p>' for line in report.lead),
        _facts(report.facts),
        _charts(others) if others else "",
        *map(_table, report.tables),
        f'<h2>Notes</h2>\n<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in report.notes)}</ul>',
    )
    return _page(report.title, parts)


def render_blocks(title: str, blocks: Sequence[Block]) -> bytes:
    """Render tables and sentences as a page; the first sentence is its headline."""
    head, rest = (blocks[0], blocks[1:]) if blocks and isinstance(blocks[0], Sentence) else (None, blocks)
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="answer">{escape(head.text)}</p>' if head else ""]
    for block in rest:
        if isinstance(block, Table):
            parts.append(_table(block))
        elif isinstance(block, Sentence):
            text = escape(block.text)
            parts.append(f"<pre>{text}</pre>" if block.code == "command" else f"<p>{text}</p>")
        else:
            parts.append(_facts(block.rows))
    return _page(title, parts)


def _page(title: str, parts: Sequence[str]) -> bytes:
    body = "\n".join(part for part in parts if part)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
    return page.encode()


def _facts(rows: Sequence[tuple[str, str]]) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<dl>{facts}</dl>" if facts else ""


def _picture(charts: Sequence[Chart]) -> str:
    """Draw the charts that belong together in one figure, over the same x axis."""
    title = escape(" and ".join(chart.title for chart in charts))
    return f'<figure id="curve">{_svg(title, *draw_stacked(charts))}{"".join(map(_legend, charts))}</figure>'


def _charts(charts: Sequence[Chart]) -> str:
    figures = "\n".join(
        f'<figure id="{chart.name}"><figcaption>{escape(chart.title)}</figcaption>'
        f"{_svg(escape(chart.title), draw_chart(chart), HEIGHT)}{_legend(chart)}"
        + (f'<p class="note">{escape(chart.note)}</p>' if chart.note else "")
        + "</figure>"
        for chart in charts
    )
    return f'<div class="charts">\n{figures}\n</div>'


def _svg(title: str, drawn: str, height: int) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}" class="chart">'
        f"<title>{title}</title>{drawn}</svg>"
    )


def _legend(chart: Chart) -> str:
    """List the series below the chart, where the list can wrap on a phone."""
    if len(chart.series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="0 0 34 12" class="key">{draw_key(series, k)}</svg>{escape(series.name)}</li>'
        for k, series in enumerate(chart.series)
    )
    return f'<ul class="legend">{items}</ul>'


def _table(table: Table) -> str:
    """Build a table; one without numbers becomes a list where there is no room for columns."""
    words = not any(column.right for column in table.columns)
    titles = ((_class(["n"] if column.right else []), escape(column.title)) for column in table.columns)
    head = "".join(f"<th{kind}>{title}</th>" for kind, title in titles)
    rows = "\n".join(
        f"<tr>{''.join(_cell(cell, column, words) for cell, column in zip(row, table.columns, strict=True))}</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="scroll"><table{_class(["words"] if words else [])}>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _cell(cell: Cell, column: Column[Any], words: bool) -> str:
    kind = [
        *(["n"] if column.right else []),
        *(["bar"] if column.id == "bar" else []),
        *([_CLASSES[cell.code]] if cell.code in _CLASSES else []),
    ]
    name = f' data-name="{escape(column.title)}"' if words and column.title and cell.code not in _CLASSES else ""
    return f"<td{_class(kind)}{name}>{escape(cell.text)}</td>"


def _class(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""
