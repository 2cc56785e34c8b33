"""A report as one HTML file: no network, no script; dark and light, and readable on a phone."""

from __future__ import annotations

import html
from collections.abc import Sequence

from swarmtui.sessions.export.curves import Source, charts
from swarmtui.sessions.export.report import Report, report_of
from swarmtui.sessions.export.structs import Chart, Table
from swarmtui.sessions.export.svg import legend, svg
from swarmtui.text import sanitize

_SIGNS = {"ok": ("ok", "✓ ok"), "not ok": ("bad", "✗ not ok"), "unknown": ("unknown", "? unknown")}

_STYLE = """
:root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c2126;--dim:#5b6670;--rule:#d9dde0;--card:#fff;
--s0:#1f6fb2;--s1:#c8610a;--s2:#5b6670;--s3:#0a8f84;--s4:#8a5bb5;--s5:#a23b5c;--ok:#1f6fb2;--bad:#b34700}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e4e7ea;--dim:#9aa5ae;--rule:#343b41;--card:#1b1f23;
--s0:#6cb4f0;--s1:#f2a154;--s2:#aab4bc;--s3:#56cbbf;--s4:#c3a1e6;--s5:#ec8fab;--ok:#6cb4f0;--bad:#f2a154}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:72rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 .6rem}h2{font-size:1.1rem;margin:1.8rem 0 .5rem}
.lead{font-weight:600;margin:.3rem 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}dt{color:var(--dim)}dd{margin:0}
.scroll{overflow-x:auto;border:1px solid var(--rule);border-radius:6px;background:var(--card)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.35rem .7rem;text-align:left;border-bottom:1px solid var(--rule);overflow-wrap:normal}
tr:last-child td{border-bottom:0}th{color:var(--dim);font-weight:600;vertical-align:bottom}
.n{text-align:right}td.n{white-space:nowrap}
td.ok{color:var(--ok);white-space:nowrap}td.bad{color:var(--bad);font-weight:600;white-space:nowrap}
td.unknown{color:var(--dim);white-space:nowrap}
.note,.notes{color:var(--dim);font-size:.88rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem;align-items:start}
figure{margin:0;padding:.8rem;border:1px solid var(--rule);border-radius:6px;background:var(--card);min-width:0}
figcaption{font-weight:600;margin-bottom:.3rem}.chart{width:100%;height:auto;display:block}
svg text{fill:var(--dim);font:12.5px system-ui,sans-serif}
svg .value{fill:var(--fg);paint-order:stroke;stroke:var(--card);stroke-width:4px}
.grid{stroke:var(--rule);fill:none}.moment{stroke:var(--dim);fill:none;stroke-dasharray:1 3}
.axis{stroke:var(--dim);fill:none}.line{fill:none;stroke-width:2}
.mark,.bar{stroke-width:1.5}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.3rem 0 0;padding:0;font-size:.88rem}
.key{width:34px;height:12px;margin-right:.4rem;vertical-align:middle}
@media (max-width:36rem){body{padding:.8rem;font-size:15px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}
th,td{padding:.3rem .45rem}svg text{font-size:16px}
.words thead{display:none}.words tr,.words td{display:block}
.words tr{border-bottom:1px solid var(--rule);padding:.3rem 0}
.words td{border:0;padding:.1rem .6rem}.words td[data-name]::before{content:attr(data-name) ": ";color:var(--dim)}}
""" + "".join(f".s{k}{{stroke:var(--s{k})}}.mark.s{k},.bar.s{k}{{fill:var(--s{k})}}" for k in range(6))


def html_report(sources: Sequence[Source]) -> bytes:
    """One session, or several with their curves over each other and each against the first."""
    found = report_of(sources)
    body = "\n".join([*_head(found), *_charts(charts(sources)), *map(_table, found.tables), _notes(found)])
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{_text(found.title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )
    return page.encode()


def _head(found: Report) -> list[str]:
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in found.facts)
    return [
        f"<h1>{_text(found.title)}</h1>",
        *(f'<p class="lead">{_text(line)}</p>' for line in found.lead),
        f"<dl>{facts}</dl>",
    ]


def _charts(found: Sequence[Chart]) -> list[str]:
    if not found:
        return []
    figures = "\n".join(
        f'<figure id="{chart.name}"><figcaption>{_text(chart.title)}</figcaption>{svg(chart)}{legend(chart)}'
        + (f'<p class="note">{_text(chart.note)}</p>' if chart.note else "")
        + "</figure>"
        for chart in found
    )
    return [f'<div class="charts">\n{figures}\n</div>']


def _table(table: Table) -> str:
    """A table of words alone is a list of its rows where there is no room for columns."""
    words = not any(table.right)
    head = "".join(_cell("th", name, right) for name, right in zip(table.columns, table.right, strict=True))
    rows = "\n".join(
        "<tr>"
        + "".join(
            _cell("td", cell, right, name if words else "")
            for name, cell, right in zip(table.columns, row, table.right, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    kind = ' class="words"' if words else ""
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{_text(table.title)}</h2>\n<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _cell(tag: str, text: str, right: bool, name: str = "") -> str:
    if text in _SIGNS and tag == "td":
        kind, shown = _SIGNS[text]
        return f'<td class="{kind}">{shown}</td>'
    number = ' class="n"' if right else ""
    told = f' data-name="{_text(name)}"' if name else ""
    return f"<{tag}{number}{told}>{_text(text)}</{tag}>"


def _notes(found: Report) -> str:
    return f'<h2>Notes</h2>\n<ul class="notes">{"".join(f"<li>{_text(note)}</li>" for note in found.notes)}</ul>'


def _text(text: str) -> str:
    return html.escape(sanitize(text))
