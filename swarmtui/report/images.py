"""Export charts as an SVG or PNG file: all on one sheet, or those that are named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from swarmtui.model.base import BadInput
from swarmtui.report.chart import Chart
from swarmtui.report.charts import SessionData, build_charts, session_title
from swarmtui.report.svg import HEIGHT, LIGHT_PAGE, WIDTH, draw_chart, draw_key, escape, svg_file
from swarmtui.text import display_width, truncate

_MARGIN, _TITLE, _LINE = 24, 26, 20
_CHARACTER = 7.2  # mean width of a character of the legend, in pixels
_ZOOM = 2
_STYLE = f"svg .title{{fill:{LIGHT_PAGE['fg']};font-size:15px;font-weight:bold}}"


def render_svg(sessions: Sequence[SessionData], chart: str | None) -> bytes:
    return _sheet(sessions, chart).encode()


def render_png(sessions: Sequence[SessionData], chart: str | None) -> bytes:
    return rasterise(_sheet(sessions, chart), _ZOOM)


def rasterise(svg: str, zoom: int) -> bytes:
    """Return an SVG as PNG, with a font of ours, since a server may have none; other scripts need a system font."""
    import resvg_py

    fonts = [str(Path(__file__).with_name("fonts") / f"swarm-sans-{weight}.ttf") for weight in ("regular", "bold")]
    return resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, font_files=fonts, sans_serif_family="Swarm Sans")


def _select(sessions: Sequence[SessionData], name: str | None) -> Sequence[Chart]:
    """Return the charts of that name or with it as prefix: `gpu` selects all of the GPUs."""
    charts = build_charts(sessions)
    if not charts:
        raise BadInput("nothing was measured, so there are no charts", key=sessions[0].summary.session.id)
    selected = [chart for chart in charts if name is None or chart.name == name or chart.name.startswith(f"{name}_")]
    if not selected:
        known = ", ".join(chart.name for chart in charts)
        raise BadInput(f"this session has no such chart; it has {known}", key=f"--chart {name}")
    return selected


def _sheet(sessions: Sequence[SessionData], chart: str | None) -> str:
    """Draw charts below what was measured: an image is shared without its session."""
    charts = _select(sessions, chart)
    columns = min(2, len(charts))
    width = columns * (WIDTH + _MARGIN) + _MARGIN
    workloads = sorted({session.summary.session.workload for session in sessions})
    what = f"{', '.join(workloads)} · {', '.join(session.summary.session.id for session in sessions)}"
    title, subtitle = (truncate(line, int((width - 2 * _MARGIN) / 8.5)) for line in (session_title(sessions), what))
    parts = [
        f'<text x="{_MARGIN}" y="{_MARGIN + 8}" class="title">{escape(title)}</text>'
        f'<text x="{_MARGIN}" y="{_MARGIN + 28}">{escape(subtitle)}</text>'
    ]
    y = _MARGIN + 52
    for line in (line for session in sessions for line in wrap(_answer(session, len(sessions) > 1), int(width / 8.5))):
        parts.append(f'<text x="{_MARGIN}" y="{y}" class="value">{escape(line)}</text>')
        y += _LINE
    for start in range(0, len(charts), columns):
        panels = [_panel(chart) for chart in charts[start : start + columns]]
        for column, (panel, _) in enumerate(panels):
            parts.append(f'<g transform="translate({_MARGIN + column * (WIDTH + _MARGIN)} {y})">{panel}</g>')
        y += max(height for _, height in panels) + _MARGIN
    return svg_file(width, y, LIGHT_PAGE, _STYLE, parts)


def _answer(session: SessionData, several: bool) -> str:
    """Return what was found, with the name of the session if there are several."""
    found = session.summary.answer
    if found is None or not session.summary.levels:
        return ""
    return f"{session.name}: {found.headline.sentence}" if several else found.headline.sentence


def _panel(chart: Chart) -> tuple[str, int]:
    """Draw a chart with its title, legend and note; return it with its height."""
    title = escape(truncate(chart.title, int(WIDTH / 8)))
    parts = [f'<text y="14" class="title">{title}</text><g transform="translate(0 {_TITLE})">{draw_chart(chart)}</g>']
    x, y = 0.0, _TITLE + HEIGHT + 8
    if len(chart.series) > 1:
        for k, series in enumerate(chart.series):
            name = truncate(series.name, int((WIDTH - 40) / _CHARACTER))
            room = 40 + _CHARACTER * display_width(name) + 20
            if x and x + room > WIDTH:
                x, y = 0.0, y + _LINE
            key = f'{draw_key(series, k)}<text x="40" y="10">{escape(name)}</text>'
            parts.append(f'<g transform="translate({x:.1f} {y})">{key}</g>')
            x += room
        y += _LINE
    if chart.note:
        parts.append(f'<text y="{y + 10}">{escape(chart.note)}</text>')
        y += _LINE
    return "".join(parts), y
