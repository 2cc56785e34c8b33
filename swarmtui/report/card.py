"""Draw a session as a card to post: the answer, the curve, why no more, what to try next, and what was measured.

It is legible at half its width: no text is smaller than 20 of its 1200 pixels.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from swarmtui.model.answer import Answer
from swarmtui.model.base import BadInput
from swarmtui.model.plan import is_open_loop
from swarmtui.model.session import Summary
from swarmtui.numbers import percent, rate, seconds
from swarmtui.report.answer import answer_number, first_token_p90, leading_steps, quality_text
from swarmtui.report.charts import session_curves
from swarmtui.report.colours import Hue
from swarmtui.report.environment import environment
from swarmtui.report.svg import DARK_PAGE, draw_stacked, escape, svg_file
from swarmtui.text import count_noun, display_width, words

WIDTH, HEIGHT = 1200, 675
_LEFT, _RIGHT = 48, WIDTH - 48
_PICTURE_X, _PICTURE_Y, _ZOOM = 470, 72, 1.6
_PICTURE = (int((_RIGHT - _PICTURE_X) / _ZOOM), 168, 96)
# The left edge and the width of the mark of a simulation, the width of a label, and the blank right of each.
_BADGE_X, _BADGE, _LABEL, _BLANK = 420, 150, 350, 20
# Widths of letters in our font, in ems, where they are not those of most.
_EMS = dict.fromkeys("iljtfr.,:;!'|()", 0.31) | dict.fromkeys("mwMW@%", 0.86) | {" ": 0.2, "…": 0.95}
_QUALITY: dict[str, Hue] = {"ok": "good", "note": "good", "doubtful": "queue"}
_STYLE = f"""
svg text{{font-family:'Swarm Sans','Source Sans 3','Source Sans Pro',system-ui,sans-serif}}
svg .card{{font-size:22px;fill:{DARK_PAGE["fg"]}}}svg .soft{{fill:{DARK_PAGE["dim"]}}}svg .small{{font-size:20px}}
svg tspan.throughput{{fill:{DARK_PAGE["throughput"]};stroke:none}}
svg tspan.latency{{fill:{DARK_PAGE["latency"]};stroke:none}}
svg .strong{{font-weight:bold}}svg .figure{{font-size:132px;font-weight:bold;fill:{DARK_PAGE["throughput"]}}}
svg .unit{{font-size:40px;font-weight:bold;fill:{DARK_PAGE["throughput"]}}}
svg .badge{{font-size:24px;font-weight:bold;fill:{DARK_PAGE["bg"]}}}
"""


class Large(NamedTuple):
    """The answer in large letters, and in a sentence."""

    number: str
    unit: str
    sentence: str


def card_svg(summary: Summary) -> str:
    """Return the card as an SVG document."""
    answer = summary.answer
    if answer is None or not summary.levels:
        raise BadInput("nothing was measured, so there is nothing to show", key=summary.session.id)
    parts = [_head(summary, answer), _answer(summary, answer), _picture(summary), _reasons(answer), _facts(summary)]
    return svg_file(WIDTH, HEIGHT, DARK_PAGE, _STYLE, parts)


def large_answer(answer: Answer) -> Large:
    """Return how many agents, or the throughput of the best level where no SLO was judged."""
    sentence = answer.headline.sentence
    if answer.agents is not None:
        number = answer_number(answer)
        return Large(number, "agent" if answer.agents == 1 and not answer.is_open else "agents", sentence)
    point = answer.at_capacity
    if point is None or point.out_tps is None:
        return Large("", "", sentence)
    return Large(rate(point.out_tps, point.half_width), "tok/s", sentence)


def _head(summary: Summary, answer: Answer) -> str:
    """Draw the label, the mark of a simulation, and the quality of the measurement."""
    quality = f"quality {quality_text(answer)}" if answer.quality != "doubtful" else quality_text(answer)
    end, left = _RIGHT - 28, _BADGE_X + _BADGE if summary.session.simulated else _LEFT + _LABEL
    shown = _fit(quality, end - left - _BLANK, 22)
    hue = _QUALITY[answer.quality]
    label = _fit(summary.session.label or "swarmtui", _LABEL, 22)
    parts = [
        f'<text x="{end}" y="50" text-anchor="end" class="card {hue}">{escape(shown)}</text>',
        f'<circle cx="{_RIGHT - 8}" cy="43" r="8" fill="{DARK_PAGE[hue]}"/>',
        f'<text x="{_LEFT}" y="50" class="card strong">{escape(label)}</text>',
    ]
    if summary.session.simulated:
        parts.append(
            f'<rect x="{_BADGE_X}" y="24" width="{_BADGE}" height="36" rx="6" fill="{DARK_PAGE["latency"]}"/>'
            f'<text x="{_BADGE_X + _BADGE // 2}" y="50" text-anchor="middle" class="badge">SIMULATED</text>'
        )
    return "".join(parts)


def _answer(summary: Summary, answer: Answer) -> str:
    large = large_answer(answer)
    hue = f";fill:{DARK_PAGE[_QUALITY['doubtful']]}" if answer.quality == "doubtful" else ""
    size = min(132, int(300 / max(1.0, 0.56 * len(large.number)))) if large.number else 0
    parts = [
        f'<text x="{_LEFT}" y="190" class="figure" style="font-size:{size}px{hue}">{escape(large.number)}'
        f'<tspan class="unit" dx="14">{escape(large.unit)}</tspan></text>'
    ]
    lines = wrap(large.sentence, 400, 22, 4)
    parts += [_line(_LEFT, 232 + 28 * at, text) for at, text in enumerate(lines)]
    y = 232 + 28 * len(lines) + 16
    for name, figure, more, colour in _figures(summary, answer)[: (460 - y) // 32 + 1]:
        parts.append(
            f'<text x="{_LEFT}" y="{y}" class="card"><tspan class="strong {colour}">{escape(figure)}</tspan> '
            f'{escape(name)} <tspan class="soft">{escape(more)}</tspan></text>'
        )
        y += 32
    return "".join(parts)


def _figures(summary: Summary, answer: Answer) -> list[tuple[str, str, str, str]]:
    """Return the figures at the capacity or the best level, then those of one agent: name, figure, more, hue."""
    rows = []
    if at := answer.at_capacity:
        width = f"± {percent(at.half_width, 1)}" if at.half_width else ""
        where = f"with {count_noun(at.c, 'agent')}"
        if at.out_tps is not None and answer.agents is not None:
            rows.append((f"tok/s {where}", rate(at.out_tps, at.half_width), width, "throughput"))
        if at.per_stream_tps is not None:
            rows.append(("tok/s per agent", rate(at.per_stream_tps, at.half_width), "", "throughput"))
        p90 = first_token_p90(at)
        if at.ttft_s is not None or p90:
            rows.append(("first token", p90 or seconds(at.ttft_s, 2), "(p90)" if p90 else "(median)", "latency"))
    one = answer.one_agent
    if one and one.per_stream_tps is not None and (answer.at_capacity is None or answer.at_capacity.c != 1):
        limit = summary.speed_of_light.level(1) if summary.speed_of_light else None
        share = f"({percent(limit.share)} of the limit)" if limit and limit.share is not None else ""
        rows.append(("tok/s for one agent", rate(one.per_stream_tps, one.half_width), share, "throughput"))
    return rows


def _picture(summary: Summary) -> str:
    charts = session_curves(summary)
    name = "requests/s" if is_open_loop(summary.levels) else "agents"
    drawn = [chart._replace(x=name) for chart in charts if any(series.points for series in chart.series)]
    elements, _ = draw_stacked(drawn, *_PICTURE) if drawn else ("", 0)
    picture = f'<g transform="translate({_PICTURE_X} {_PICTURE_Y}) scale({_ZOOM})">{elements}</g>'
    if any(series.stroke == "sparse" and series.points for series in charts[0].series):
        legend = "··· limit of the hardware"
        x = _PICTURE_X + int(64 * _ZOOM)
        picture += f'<text x="{x}" y="{_PICTURE_Y + 14}" class="card small soft">{legend}</text>'
    return picture


def _reasons(answer: Answer) -> str:
    """Draw why there are no more agents, and what to try next, below the picture."""
    steps = leading_steps(answer.next)
    rows = (("Why no more", answer.limit.sentence), ("Try next", steps[0].sentence if steps else ""))
    parts, y, left = [], 492, 4
    for name, text in rows:
        if not text:
            continue
        parts.append(f'<text x="{_LEFT}" y="{y}" class="card soft">{name}</text>')
        lines = wrap(text, _RIGHT - _LEFT - 150, 22, min(2, left))
        parts += [_line(_LEFT + 150, y + 26 * at, line) for at, line in enumerate(lines)]
        y, left = y + 26 * len(lines), left - len(lines)
    return "".join(parts)


def _facts(summary: Summary) -> str:
    """Draw what was measured, on what and with what, at the bottom."""
    known = environment(summary)
    lines = (
        " · ".join(filter(None, (known.hardware, known.engine, known.model))),
        known.flags or "flags not known",
        " · ".join(filter(None, (known.workload, known.plan, known.tool, known.date))),
    )
    parts = [f'<path d="M{_LEFT} 578H{_RIGHT}" class="grid"/>']
    for at, text in enumerate(lines):
        kind, fitted = " soft" if at else "", escape(_fit(text, _RIGHT - _LEFT, 20))
        parts.append(f'<text x="{_LEFT}" y="{605 + 26 * at}" class="card small{kind}">{fitted}</text>')
    return "".join(parts)


def _width(text: str, size: float) -> float:
    """Estimate the width of a text in our font, by kinds of letters."""
    ems = fsum(_EMS.get(letter, 0.62 if letter.isupper() else 0.53 * display_width(letter)) for letter in text)
    return size * ems


def _fit(text: str, width: float, size: float) -> str:
    """Cut a text so that it is not wider than this."""
    if _width(text, size) <= width:
        return text
    room = width - _width("…", size)
    ends = bisect(range(len(text)), room, key=lambda end: _width(text[: end + 1], size))
    return text[:ends].rstrip() + "…"


def _line(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" class="card">{escape(text)}</text>'


def wrap(text: str, width: float, size: float, most: int) -> Sequence[str]:
    """Break a text at blanks into lines of this width, at most `most`; the last one may end with an ellipsis."""
    lines = [""]
    for word in words(text):
        longer = f"{lines[-1]} {word}".strip()
        if _width(longer, size) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines[most - 1 :] = [" ".join(lines[most - 1 :])]
    return [_fit(line, width, size) for line in lines if line]
