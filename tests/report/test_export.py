from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import re
import shutil
import struct
import subprocess
import tomllib
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import resvg_py
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from swarmtui.model.base import BadInput
from swarmtui.model.findings import Goodput
from swarmtui.model.journal import Entry, Head, RequestEntry, ServerEntry, TelemetryEntry
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.telemetry import DiscoveredServer, Energy, Gpu, Telemetry
from swarmtui.report import FORMATS, export, format_of, session_data
from swarmtui.report.chart import Chart, ChartSeries
from swarmtui.report.charts import SessionData, build_charts
from swarmtui.report.figure_tables import machine_table
from swarmtui.report.session import goodput_table
from swarmtui.report.svg import draw_chart
from swarmtui.report.table import Cell
from swarmtui.sessions.store import LoadedSession, load_session, write_summary
from swarmtui.text import sanitize
from tests.analysis.level_builders import level, summary
from tests.sessions.session_builders import T0, full_session, head, open_loop_session, record, write_session

NASTY = "<script>alert(1)</script> | *x* `y` [z](http://e) \x1b[31m =cmd()"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
RECORDED = Path(__file__).parents[1] / "sessions" / "recorded"
STEADY = "swarmtui_level_steady_tokens_per_second"
TEXT_FORMATS = tuple(form for form in FORMATS if form not in ("png", "svg"))


def loaded(root: Path, entries: list[Entry] | None = None, name: str = "20261115-014455-3f9a") -> LoadedSession:
    write_session(root / name, full_session(name) if entries is None else entries)
    return load_session(root, name)


def text(root: Path, form: Any, **fields: Any) -> str:
    entries = full_session(**fields)
    entries.insert(-1, RequestEntry(record=record(900, sent=2280, c=2, stage=2, type="a", cap_hit=True)))
    return export([loaded(root, entries)], form).decode()


class Tables(html.parser.HTMLParser):
    """Collects the cells of all tables by heading, all tags, and all links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[str] = []
        self.links: list[str] = []
        self._name, self._inside, self._text = "", "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag in ("h2", "th", "td"):
            self._inside, self._text = tag, ""
        if tag == "tr":
            self.tables.setdefault(self._name, []).append([])

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "h2":
            self._name = self._text
        elif tag in ("th", "td"):
            self.tables[self._name][-1].append(self._text)


def test_the_suffix_of_a_file_decides_its_format() -> None:
    assert [format_of(suffix) for suffix in ("html", "md", "prom")] == ["html", "md", "openmetrics"]
    for name in ("report", "pdf", ""):
        with pytest.raises(BadInput, match="such a suffix"):
            format_of(name)


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_export_is_reproducible(tmp_path: Path, form: Any) -> None:
    one = loaded(tmp_path)
    assert export([one], form) == export([load_session(tmp_path, "2026")], form)


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_export_needs_only_the_journal(tmp_path: Path, form: Any) -> None:
    """A session recorded on a real GPU gives the same export with and without its derived files."""
    kept, bare = (shutil.copytree(RECORDED, tmp_path / name) for name in ("kept", "bare"))
    (session,) = kept.iterdir()
    write_summary(session)
    assert len(list(session.iterdir())) > 1
    assert export([load_session(kept, session.name)], form) == export([load_session(bare, session.name)], form)


@pytest.mark.parametrize("form", ["png", "svg"])
def test_images_are_reproducible_and_name_the_session(tmp_path: Path, form: Any) -> None:
    one = loaded(tmp_path)
    image = export([one], form)
    assert image == export([one], form)
    assert image.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    if form == "svg":
        for title in (b"Output throughput", b"Time to first token", b"Contention"):
            assert title in image
        assert b"qwen3" in image and b"20261115-014455-3f9a" in image, "an image is shared without its session"
        single = export([one], form, "contention")
        assert b"Contention" in single and b"Output throughput" not in single


def test_png_has_text_on_a_machine_without_fonts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = loaded(tmp_path)
    usual = export([one], "png")
    rasterise = resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **options: rasterise(**options, skip_system_fonts=True))
    assert export([one], "png") == usual
    width, height = struct.unpack(">II", usual[16:24])
    assert width > 2000 and height > 1000


def test_svg_is_well_formed_and_self_contained(tmp_path: Path) -> None:
    content = export([loaded(tmp_path, full_session(label=NASTY))], "svg").decode()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(content).iter()}
    assert tags <= {"svg", "style", "rect", "g", "path", "circle", "text", "title"}
    assert "var(" not in content and "url(" not in content and "href" not in content


def test_unknown_chart_error_lists_the_charts(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="it has throughput, ttft, stream, pareto, contention, degradation"):
        export([loaded(tmp_path)], "svg", "gpu")


def test_csv_figures_match_the_journal(tmp_path: Path) -> None:
    """Compute the figures again from the lines of the journal, by their definitions."""
    rows = list(csv.DictReader(io.StringIO(text(tmp_path, "csv"))))
    lines = [
        json.loads(line) for line in (tmp_path / "20261115-014455-3f9a" / "journal.jsonl").read_text().splitlines()
    ]
    records = [
        line["record"] for line in lines if line["kind"] == "request" and line["record"].get("phase") != "warmup"
    ]
    for row in rows:
        mine = [r for r in records if r["c"] == int(row["c"])]
        ttft = [(r["t_first_ns"] - r["t_sent_ns"]) / 1e9 for r in mine]
        decode = [(r["tokens_out"] - r["first_tokens"]) / ((r["t_last_ns"] - r["t_first_ns"]) / 1e9) for r in mine]
        wall = (max(r["t_last_ns"] for r in mine) - min(r["t_sent_ns"] for r in mine)) / 1e9
        busy = sum(r["t_last_ns"] - r["t_sent_ns"] for r in mine) / 1e9
        assert int(row["n"]) == int(row["ok"]) == len(mine)
        assert int(row["tokens_out"]) == sum(r["tokens_out"] for r in mine)
        assert float(row["wall_s"]) == pytest.approx(wall)
        assert float(row["out_tps_wall"]) == pytest.approx(sum(r["tokens_out"] for r in mine) / wall)
        assert float(row["c_achieved"]) == pytest.approx(busy / wall)
        assert float(row["per_stream_tps.mean"]) == pytest.approx(sum(decode) / len(decode))
        assert float(row["ttft_s.p50"]) == pytest.approx(median(ttft))
        if not row["run"]:
            assert int(row["cap_hits"]) == sum(r.get("cap_hit", False) for r in mine)
            assert float(row["total_tps"]) == pytest.approx(sum(r["tokens_out"] + r["tokens_in"] for r in mine) / wall)
            assert float(row["tpot_s.mean"]) == pytest.approx(sum(1 / rate for rate in decode) / len(decode))
            assert row["ttft_s.p90"] == ""
    assert [(row["c"], row["run"]) for row in rows] == [("1", ""), ("1", "1"), ("2", ""), ("2", "1")]


def test_all_formats_have_the_figures_of_the_csv(tmp_path: Path) -> None:
    rows = [row for row in csv.DictReader(io.StringIO(text(tmp_path / "c", "csv"))) if not row["run"]]
    page = Tables(text(tmp_path / "h", "html"))
    markdown = text(tmp_path / "m", "md")
    toml = tomllib.loads(text(tmp_path / "t", "toml"))
    document = json.loads(text(tmp_path / "j", "json"))
    head_row, *body = page.tables["Throughput"]
    assert head_row[:3] == ["C", "runs", "n"]
    for row, cells, in_toml, in_json in zip(rows, body, toml["levels"], document["levels"], strict=True):
        shown = dict(zip(head_row, cells, strict=True))
        for column, field in (("wall", "out_tps_wall"), ("steady", "out_tps_steady"), ("prompt + output", "total_tps")):
            assert float(shown[column].replace(",", "")) == pytest.approx(float(row[field]), rel=5e-3)
            assert in_toml[field] == pytest.approx(float(row[field]), rel=1e-5)
            assert in_json[field] == float(row[field])
        assert re.search(r"\|\s*" + r"\s*\|\s*".join(re.escape(cell) for cell in cells) + r"\s*\|", markdown)
    for name, table in page.tables.items():
        assert f"## {name}" in markdown
        assert len(table) > 1


def test_every_format_has_the_publication_checklist(tmp_path: Path) -> None:
    page = Tables(text(tmp_path / "h", "html"))
    names = [row[1] for row in page.tables["Publication checklist"][1:]]
    assert "errors" in names and "journal" in names
    assert [check["name"] for check in json.loads(text(tmp_path / "j", "json"))["checks"]] == names
    assert [check["name"] for check in tomllib.loads(text(tmp_path / "t", "toml"))["checks"]] == names
    markdown = text(tmp_path / "m", "md")
    assert all(f"| {name} " in markdown for name in names)


def test_untrusted_text_is_escaped(tmp_path: Path) -> None:
    fields = {"label": NASTY, "note": NASTY, "server_flags": NASTY, "tags": {NASTY: NASTY}}
    page = text(tmp_path / "h", "html", **fields)
    assert "script" not in Tables(page).tags
    assert "<script>alert" not in page and "\x1b" not in page
    markdown = text(tmp_path / "m", "md", **fields)
    assert r"\<script\>" in markdown and "<script>" not in markdown and "\x1b" not in markdown
    assert r"\[z\](http" in markdown
    assert tomllib.loads(text(tmp_path / "t", "toml", **fields))["label"] == NASTY


def test_untrusted_text_stays_in_its_cell(tmp_path: Path) -> None:
    entries = full_session()
    request = record(900, sent=2280, c=2, stage=2, type=NASTY, verdict="pass")
    entries.insert(-1, RequestEntry(record=request))
    made = loaded(tmp_path, entries)
    page = Tables(export([made], "html").decode())
    assert page.tables["Answers"][1][0].startswith("<script>alert(1)</script> | *x*") and "script" not in page.tags
    header, _, row = export([made], "md").decode().split("## Answers\n\n")[1].splitlines()[:3]
    assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", header)) == 3


def test_open_loop_shows_its_rate_instead_of_the_stream_limit(tmp_path: Path) -> None:
    made = loaded(tmp_path, open_loop_session())
    rows = list(csv.DictReader(io.StringIO(export([made], "csv").decode())))
    assert [(row["c"], row["rate"], row["run"]) for row in rows] == [
        ("", "2.0", ""),
        ("", "2.0", "1"),
        ("", "4.0", ""),
        ("", "4.0", "1"),
    ]
    for form in ("md", "html"):
        assert "512" not in export([made], form).decode()


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t=", "\r=", " ="])
def test_csv_contains_no_formulas(tmp_path: Path, sign: str) -> None:
    rows = csv.DictReader(io.StringIO(text(tmp_path, "csv", id=f"{sign}1+1"), newline=""))
    assert {row["session"] for row in rows} == {f"'{sign.strip()}1+1"}


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\x1b[31m "])
def test_csv_has_one_line_per_row(tmp_path: Path, end: str) -> None:
    lines = text(tmp_path, "csv", id=f"a{end}b").splitlines()
    assert len(lines) == 1 + 4 and all("a b" in line for line in lines[1:])


def test_html_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = Tables(text(tmp_path, "html"))
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert page.links == ["data:,"]
    raw = export([load_session(tmp_path, "last")], "html").decode()
    assert "url(" not in raw and "@import" not in raw
    assert "prefers-color-scheme:dark" in raw and "width=device-width" in raw


def test_empty_session_is_exported(tmp_path: Path) -> None:
    entries: list[Entry] = [head(plan=Plan(load=Closed(levels=(1,))))]
    for form in TEXT_FORMATS:
        assert isinstance(export([loaded(tmp_path / form, entries)], form), bytes)


def test_several_sessions_are_compared_in_one_report(tmp_path: Path) -> None:
    names = ("20261115-014455-3f9a", "20261115-014455-3f9b")
    both = [
        loaded(tmp_path, full_session(name, label=label), name)
        for name, label in zip(names, ("one", "two"), strict=True)
    ]
    page = export(both, "html").decode()
    assert page.count("<li><svg") >= 4
    assert ">one</li>" in page and ">two</li>" in page
    assert "two compared with one: " in page
    markdown = export(both, "md").decode()
    assert "## Side by side: A is one, B is two" in markdown
    assert "## one: Throughput" in markdown and "## two: Throughput" in markdown
    with pytest.raises(BadInput, match="csv holds one session"):
        export(both, "csv")


def test_sessions_without_a_label_are_named_by_the_flags_that_differ(tmp_path: Path) -> None:
    names = ("20261115-014455-3f9a", "20261115-014455-3f9b")
    flags = ("--max-num-seqs 2 --port 1", "--max-num-seqs 4 --port 2")
    both = [loaded(tmp_path, full_session(n, server_flags=f), n) for n, f in zip(names, flags, strict=True)]
    page = export(both, "html").decode()
    assert ">--max-num-seqs 2</li>" in page and ">--max-num-seqs 4</li>" in page
    assert "grid-auto-rows:1fr" in page


def test_a_stream_that_is_faster_than_at_c_1_has_no_slowdown() -> None:
    queued = [level(1, tps=100.0, ttft=0.1), level(4, tps=360.0, ttft=0.1), level(8, tps=371.0, ttft=2.0)]
    other = [level(1, tps=50.0, ttft=0.2), level(4, tps=180.0, ttft=0.3, contention=-0.13)]
    charts = {c.name: c for c in build_charts([SessionData("a", summary(queued)), SessionData("b", summary(other))])}
    assert "throughput" in charts and "contention" not in charts


def test_percentages_have_a_linear_axis() -> None:
    """A slowdown of 0.1 to 80 % would otherwise be drawn logarithmically, as a rate is."""
    series = (ChartSeries("", ((1.0, 0.1), (8.0, 80.0))),)
    rates = Chart("throughput", "", "levels", "C", "output tok/s", series)
    assert "logarithmic" in draw_chart(rates) and "logarithmic" not in draw_chart(rates._replace(linear=True))
    streams = [level(1, tps=1.0), level(4, tps=1.0, contention=0.002), level(8, tps=1.0, contention=0.9)]
    (chart,) = (c for c in build_charts([SessionData("", summary(streams))]) if c.name == "contention")
    assert chart.linear


def test_a_task_type_that_is_named_like_a_state_is_printed_as_it_is(tmp_path: Path) -> None:
    entries = full_session()
    entries.insert(-1, RequestEntry(record=record(900, sent=2280, c=2, stage=2, type="ok", verdict="pass")))
    made = loaded(tmp_path, entries)
    raw = export([made], "html").decode()
    assert "ok" in [row[0] for row in Tables(raw).tables["Answers"]]
    assert ">✓ ok</td>" in raw[raw.index("Publication checklist") :] and ">✓ ok</td>" not in raw[: raw.index("Scaling")]
    assert "| ok " in export([made], "md").decode().split("## Answers")[1].split("##")[0]


def test_every_rate_of_counted_chunks_is_marked() -> None:
    counted = level(2, tps=50.0, token_source="chunks", energy=Energy(seconds=1.0, j_per_token=2.0, tokens_per_j=0.5))
    good = Goodput(c=2, n=16, good=16, share=1.0, per_s=4.0, out_tps=50.0, kept=True)
    found = msgspec.structs.replace(summary([counted]), goodput=(good,))
    assert goodput_table(found).rows[0][-1] == Cell("~50.00", "estimated")
    assert {Cell("~2.000", "estimated"), Cell("~0.5000", "estimated")} <= set(machine_table(found.levels).rows[0])


def test_pareto_chart_has_a_curve_for_each_session(tmp_path: Path) -> None:
    shutil.copytree(RECORDED.parents[1] / "tui" / "recorded", tmp_path / "s")
    names = sorted(path.name for path in (tmp_path / "s").iterdir())
    sessions = [session_data(load_session(tmp_path / "s", name))._replace(name=name) for name in names]
    (chart,) = (chart for chart in build_charts(sessions) if chart.name.startswith("pareto"))
    assert [series.name for series in chart.series] == names
    assert (chart.x, chart.y) == ("tok/s per agent", "output tok/s per GPU")
    first = sessions[0].summary
    users = [level.per_stream_tps.mean for level in first.levels]
    per_gpu = [(level.headline_tps or 0.0) / len(first.gpus) for level in first.levels]
    assert chart.series[0].points == tuple(zip(users, per_gpu, strict=True))
    assert list(chart.series[0].names) == [f"C={level.c}" for level in first.levels]
    without = [one._replace(summary=msgspec.structs.replace(one.summary, gpus=())) for one in sessions]
    (whole,) = (chart for chart in build_charts(without) if chart.name.startswith("pareto"))
    assert whole.y == "output tok/s per server" and whole.series[0].points[0][1] == first.levels[0].headline_tps
    assert ">C=4</text>" in export([load_session(tmp_path / "s", name) for name in names], "svg", "pareto").decode()


def test_best_level_and_cliff_are_marked(tmp_path: Path) -> None:
    shutil.copytree(RECORDED.parents[1] / "tui" / "recorded", tmp_path / "s")
    first = min(path.name for path in (tmp_path / "s").iterdir())
    chart = build_charts([session_data(load_session(tmp_path / "s", first))])[0]
    assert chart.series[0].marks == ((4.0, "best"), (8.0, "cliff"))
    page = export([load_session(tmp_path / "s", first)], "svg").decode()
    assert ">best</text>" in page and ">cliff</text>" in page


def test_report_begins_with_the_answer_and_its_picture(tmp_path: Path) -> None:
    shutil.copytree(RECORDED.parents[1] / "tui" / "recorded", tmp_path / "s")
    first = min(path.name for path in (tmp_path / "s").iterdir())
    page = export([load_session(tmp_path / "s", first)], "html").decode()
    body = page[page.index("<body>") :]
    order = ['class="answer"', 'id="curve"', "<dt>Why no more</dt>", "<dt>Try next</dt>", "<dt>Session</dt>", "<table"]
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    picture = body[body.index('id="curve"') : body.index("</figure>")]
    assert "output tok/s" in picture and "first token (median), ms" in picture and picture.count('class="axis"') == 2
    assert "<script" not in page and "prefers-color-scheme:dark" in page


def test_sessions_with_the_same_label_get_their_ids(tmp_path: Path) -> None:
    names = ("20261115-014455-3f9a", "20261115-014455-3f9b")
    page = export([loaded(tmp_path, full_session(name, label="same"), name) for name in names], "html").decode()
    assert all(f">same ({name})</li>" in page for name in names)


def test_csv_contains_no_python_literals(tmp_path: Path) -> None:
    cells = [cell for row in csv.reader(io.StringIO(text(tmp_path, "csv"))) for cell in row]
    assert "true" in cells
    assert not {"True", "False", "None", "()", "[]", "{}"} & set(cells)


def session_with_gpus(directory: Path, seconds: int = 5, **readings: Any) -> LoadedSession:
    """A session with one sample per second of two GPUs and a partition of one."""
    entries = full_session()
    cards: list[dict[str, Any]] = [
        {"uuid": "g0", "index": 0},
        {"uuid": "g1", "index": 1},
        {"uuid": "m0", "index": 0, "part_of": "g0"},
    ]
    samples = [
        TelemetryEntry(
            telemetry=Telemetry(
                t_ns=T0 + k * 10**9,
                gpus=tuple(Gpu(name="X 9", **card, **{n: of(k) for n, of in readings.items()}) for card in cards),
            )
        )
        for k in range(seconds)
    ]
    return loaded(directory, [*entries[:-1], *samples, entries[-1]])


READINGS: dict[str, Any] = {
    "power_w": lambda k: 300.0 + k,
    "memory_used": lambda k: 20_000_000_000 + k * 10**9,
    "utilisation": lambda k: 0.5 + k / 100,
    "temperature_c": lambda k: 40.0 + k,
}


def test_gpu_readings_are_charted_over_time(tmp_path: Path) -> None:
    source = session_data(session_with_gpus(tmp_path, **READINGS))
    found = {chart.name: chart for chart in build_charts([source])}
    expected = {
        "gpu_power": ("W", 304.0),
        "gpu_memory": ("GiB", 24e9 / 2**30),
        "gpu_utilisation": ("%", 54.0),
        "gpu_temperature": ("°C", 44.0),
    }
    assert [name for name in found if name.startswith("gpu")] == list(expected)
    for name, (unit, last) in expected.items():
        chart = found[name]
        assert (chart.y, [series.name for series in chart.series]) == (unit, ["GPU 0", "GPU 1"])
        at, value = chart.series[0].points[-1]
        assert at == 4.0 and value == pytest.approx(last)
        assert chart.marks == ((0.0, "warm-up"), (1.0, "C=1"), (2.0, "C=2"))


def test_missing_gpu_reading_has_no_chart(tmp_path: Path) -> None:
    source = session_data(session_with_gpus(tmp_path, power_w=READINGS["power_w"], simulated=lambda k: True))
    found = [chart for chart in build_charts([source]) if chart.name.startswith("gpu")]
    assert [chart.title for chart in found] == ["GPU power (SIMULATED)"]


def test_long_session_is_averaged_to_few_points(tmp_path: Path) -> None:
    source = session_data(session_with_gpus(tmp_path, seconds=1300, power_w=lambda k: float(k % 7)))
    (chart,) = (chart for chart in build_charts([source]) if chart.name == "gpu_power")
    points = chart.series[0].points
    assert len(points) <= 600
    assert sum(y for _, y in points) / len(points) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("form", ["png", "svg"])
def test_every_chart_is_drawn(tmp_path: Path, form: Any) -> None:
    """`gpu` selects all charts of the GPUs; `gpu_memory` selects one."""
    kinds = [
        RequestEntry(record=record(900 + k, sent=2280, c=2, stage=2, type="ab"[k % 2], verdict="pass"))
        for k in range(4)
    ]
    first = session_with_gpus(tmp_path, **READINGS)
    entries = [*full_session("20261115-014455-3f9b")[:-1], *kinds, full_session()[-1]]
    second = loaded(tmp_path, entries, "20261115-014455-3f9b")
    names = ["throughput", "ttft", "contention", "degradation", "gpu", "gpu_memory"]
    images = [export([first, second], form, name) for name in names]
    images.append(export([second], form, "side_tasks"))
    assert len(set(images)) == len(images)
    if form == "svg":
        for title in (b"GPU power", b"GPU memory in use", b"GPU utilisation", b"GPU temperature", b"C=2"):
            assert title in images[names.index("gpu")]
        assert b"GPU power" not in images[names.index("gpu_memory")]


def test_task_types_have_a_chart(tmp_path: Path) -> None:
    kinds = [
        RequestEntry(record=record(900 + k, sent=2280, c=2, stage=2, type="ab"[k % 2], verdict="pass"))
        for k in range(4)
    ]
    page = export([loaded(tmp_path, [*full_session()[:-1], *kinds, full_session()[-1]])], "html").decode()
    assert 'id="side_tasks"' in page and "2/2 passed" in page


def test_report_names_gpus_and_server(tmp_path: Path) -> None:
    server = DiscoveredServer(
        url="http://127.0.0.1:8000", engine="vllm", version="0.11", slots=4, flags={"--max-num-seqs": "4"}
    )
    entries = full_session()
    gpus = tuple(
        Gpu(uuid=f"g{k}", index=k, name="NVIDIA H200", memory_total=150_754_820_096, power_limit_w=700.0)
        for k in (0, 1)
    )
    entries[1:1] = [ServerEntry(endpoint=0, server=server), TelemetryEntry(telemetry=Telemetry(t_ns=T0, gpus=gpus))]
    one = loaded(tmp_path, entries)
    page = export([one], "md").decode()
    assert "- GPUs: 2 × NVIDIA H200, 140 GiB, 700 W" in page
    assert "- Server: vllm 0.11 · 4 slots · --max-num-seqs 4" in page
    summary = tomllib.loads(export([one], "toml").decode())
    assert summary["gpus"] == ["NVIDIA H200, 140 GiB, 700 W"] * 2
    assert summary["servers"][0]["flags"] == {"--max-num-seqs": "4"}


def open_in_chromium(page: Path, width: int, *words: str) -> tuple[str, str]:
    """Return the document as the browser has it, and its log. Host names cannot be resolved."""
    shot = page.with_suffix(".png")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--enable-logging=stderr", "--virtual-time-budget=2000", f"--user-data-dir={page.parent / f'profile-{width}'}",
        f"--window-size={width},2000", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", f"--screenshot={shot}",
        *words, page.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert shot.stat().st_size > 20_000
    return ran.stdout, ran.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_browser_shows_every_table_and_chart(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(text(tmp_path / "s", "html", label=NASTY, server_flags="--max-num-seqs 2"))
    document, log = open_in_chromium(page, 1200)
    assert "CONSOLE" not in log, log
    shown = Tables(document)
    assert set(shown.tables) == set(Tables(page.read_text()).tables)
    assert {"Throughput", "Latency", "Publication checklist", "Scaling"} <= set(shown.tables)
    assert document.count('class="chart"') >= 4


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_html_fits_a_phone_screen_in_both_schemes(tmp_path: Path, scheme: str) -> None:
    """Use a frame as wide as a phone, since a window cannot be so narrow; a script of the test measures it."""
    flags = "--max-num-seqs 2 --model /a/very/long/path/without/any/blank/in/it/" + "x" * 80
    written = export([session_with_gpus(tmp_path / "s", **READINGS)], "html").decode().replace("coding", flags)
    page = tmp_path / "phone.html"
    page.write_text(
        f'<!doctype html><iframe style="width:390px;height:4000px;border:0" srcdoc="{html.escape(written)}"></iframe>'
        "<script>document.querySelector('iframe').onload = ({target}) => {"
        "const inside = target.contentDocument, style = (of) => getComputedStyle(inside.querySelector(of));"
        "document.title = [inside.documentElement.scrollWidth, inside.documentElement.clientWidth,"
        "style('.words tr').display, style('body').backgroundColor].join(' ')}</script>"
    )
    document, log = open_in_chromium(page, 1000, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}")
    measured = re.search(r"<title>(\d+) (\d+) (\w+) (rgb\([\d, ]+\))</title>", document)
    assert measured is not None, document[-500:]
    assert int(measured.group(1)) <= int(measured.group(2)) <= 390
    assert measured.group(3) == "block"
    assert measured.group(4) == {"dark": "rgb(20, 23, 26)", "light": "rgb(251, 251, 250)"}[scheme]
    assert "CONSOLE" not in log, log


@pytest.mark.parametrize("value", [5e-324, -5e-324, 1e308, -1e308])
@pytest.mark.parametrize("field", ["power_w", "utilisation", "temperature_c", "energy_j"])
def test_impossible_gpu_readings_do_not_break_an_export(tmp_path: Path, field: str, value: float) -> None:
    first, *others = full_session()
    assert isinstance(first, Head)
    readings: list[Entry] = []
    for second in range(4):
        reading = {"power_w": 200.0, "utilisation": 0.5, "temperature_c": 50.0, "energy_j": 200.0 * second}
        gpu = Gpu(uuid="u", index=0, name="GPU", **(reading | ({field: value} if second % 2 else {})))  # type: ignore[arg-type]
        t_ns = first.session.t0_ns + second * 1_000_000_000
        readings.append(TelemetryEntry(telemetry=Telemetry(t_ns=t_ns, gpus=(gpu,))))
    write_session(tmp_path / "20261115-014455-3f9a", [first, *readings, *others])
    for form in ("html", "svg", "md", "csv", "json", "toml"):
        assert export([load_session(tmp_path, "last")], form)


def metric_families(page: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page)}  # type: ignore[no-untyped-call]


def test_openmetrics_has_the_figures_of_each_level(tmp_path: Path) -> None:
    page = text(tmp_path, "openmetrics", label=NASTY)
    families = metric_families(page)
    (info,) = families["swarmtui_session"].samples
    assert info.labels["label"] == sanitize(NASTY) and "\x1b" not in page
    levels = session_data(load_session(tmp_path, "20261115-014455-3f9a")).summary.levels
    steady = {
        sample.labels["c"]: sample.value for sample in families["swarmtui_level_steady_tokens_per_second"].samples
    }
    assert steady == {str(level.c): level.out_tps_steady for level in levels if level.out_tps_steady is not None}
    ttft = families["swarmtui_level_ttft_seconds"]
    assert (ttft.type, ttft.unit) == ("summary", "seconds")
    maxima = {sample.labels["c"]: sample.value for sample in ttft.samples if sample.labels["quantile"] == "1"}
    assert maxima == {str(level.c): level.ttft_s.max for level in levels if level.ttft_s.max is not None}


def test_openmetrics_of_an_open_loop_has_rates(tmp_path: Path) -> None:
    page = export([loaded(tmp_path, open_loop_session())], "openmetrics").decode()
    ttft = metric_families(page)["swarmtui_level_ttft_seconds"]
    assert ttft.samples and all("rate" in sample.labels and "c" not in sample.labels for sample in ttft.samples)


def test_curve_has_a_band_of_half_widths() -> None:
    series = (ChartSeries("steady", ((1.0, 100.0), (2.0, 190.0)), half_widths=(5.0, 60.0)),)
    drawn = draw_chart(Chart("throughput", "", "levels", "C", "output tok/s", series))
    assert drawn.count('class="band throughput"') == 1
    assert "<title>steady: C=2: 190.0 ± 60 output tok/s</title>" in drawn, "shown on hover"
    times = draw_chart(Chart("ttft", "", "levels", "C", "first token (median), s", series))
    assert "<title>steady: C=2: first token (median) 190.0 ± 60 s</title>" in times, "the unit follows the value"
    assert ">250<" in drawn, "the axis includes the edge of the band"
    assert "band" not in draw_chart(Chart("ttft", "", "levels", "C", "ms", (series[0]._replace(half_widths=()),)))
