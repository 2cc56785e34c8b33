from __future__ import annotations

import csv
import html
import html.parser
import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from swarmtui.model.plan import Plan
from swarmtui.model.schema import BadInput
from swarmtui.model.session import Entry, Request, Sample, ServerFound
from swarmtui.model.telemetry import Discovered, Gpu, Telemetry
from swarmtui.sessions.export import FORMATS, export, source_of
from swarmtui.sessions.export.curves import charts
from swarmtui.sessions.store import Loaded, load, write_summary
from tests.sessions.made_sessions import T0, head, open_loop, record, whole, write

NASTY = "<script>alert(1)</script> | *x* `y` [z](http://e) \x1b[31m =cmd()"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
RECORDED = Path(__file__).with_name("recorded")
TEXT_FORMATS = tuple(form for form in FORMATS if form not in ("png", "svg"))


def loaded(root: Path, entries: list[Entry] | None = None, name: str = "20261115-014455-3f9a") -> Loaded:
    write(root / name, whole(name) if entries is None else entries)
    return load(root, name)


def text(root: Path, form: Any, **fields: Any) -> str:
    entries = whole(**fields)
    entries.insert(-1, Request(record=record(900, sent=2280, c=2, stretch=2, type="a", cap_hit=True)))
    return export([loaded(root, entries)], form).decode()


class Tables(html.parser.HTMLParser):
    """The cells of all tables, by the heading above each; and whatever could load or run something."""

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


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_the_same_session_twice_is_the_same_bytes(tmp_path: Path, form: Any) -> None:
    one = loaded(tmp_path)
    assert export([one], form) == export([load(tmp_path, "2026")], form)


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_every_number_of_every_export_comes_from_the_journal_alone(tmp_path: Path, form: Any) -> None:
    """A recorded run on a real GPU, with all that is derived from it, and with nothing but its journal."""
    kept, bare = (shutil.copytree(RECORDED, tmp_path / name) for name in ("kept", "bare"))
    (session,) = kept.iterdir()
    write_summary(session)
    assert len(list(session.iterdir())) > 1
    assert export([load(kept, session.name)], form) == export([load(bare, session.name)], form)


@pytest.mark.parametrize("form", ["png", "svg"])
def test_charts_are_drawn_and_always_the_same(tmp_path: Path, form: Any) -> None:
    pytest.importorskip("matplotlib", reason="the extra charts is not installed")
    one = loaded(tmp_path)
    picture = export([one], form)
    assert picture == export([one], form)
    assert picture.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    if form == "svg":
        for title in (b"Output throughput", b"Time to first token", b"Contention"):
            assert title in picture
        assert b"qwen3" in picture and b"20261115-014455-3f9a" in picture, "a picture travels alone"
        alone = export([one], form, "contention")
        assert b"Contention" in alone and b"Output throughput" not in alone


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match="pip install matplotlib"):
        export([loaded(tmp_path)], "png")


def test_a_chart_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra charts is not installed")
    with pytest.raises(BadInput, match="it has throughput, ttft, contention, degradation"):
        export([loaded(tmp_path)], "svg", "gpu")


def test_every_number_of_the_csv_is_worked_out_again_from_the_journal_alone(tmp_path: Path) -> None:
    """Not with the code that made it: from the lines of the journal, by the definitions."""
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


def test_markdown_html_toml_and_json_hold_the_numbers_of_the_csv(tmp_path: Path) -> None:
    rows = [row for row in csv.DictReader(io.StringIO(text(tmp_path / "c", "csv"))) if not row["run"]]
    page = Tables(text(tmp_path / "h", "html"))
    markdown = text(tmp_path / "m", "md")
    toml = tomllib.loads(text(tmp_path / "t", "toml"))
    document = json.loads(text(tmp_path / "j", "json"))
    head_row, *body = page.tables["Throughput"]
    assert head_row[:3] == ["C", "runs", "n"]
    for row, cells, in_toml, in_json in zip(rows, body, toml["levels"], document["levels"], strict=True):
        shown = dict(zip(head_row, cells, strict=True))
        for column, field in (("wall", "out_tps_wall"), ("steady", "out_tps_steady"), ("total", "total_tps")):
            assert float(shown[column]) == pytest.approx(float(row[field]), rel=1e-3)
            assert in_toml[field] == pytest.approx(float(row[field]), rel=1e-5)
            assert in_json[field] == float(row[field])
        assert re.search(r"\|\s*" + r"\s*\|\s*".join(re.escape(cell) for cell in cells) + r"\s*\|", markdown)
    for name, table in page.tables.items():
        assert f"## {name}" in markdown
        assert len(table) > 1


def test_checks_are_in_every_export(tmp_path: Path) -> None:
    page = Tables(text(tmp_path / "h", "html"))
    names = [row[1] for row in page.tables["Fit to publish"][1:]]
    assert len(names) == 15
    assert [check["name"] for check in json.loads(text(tmp_path / "j", "json"))["checks"]] == names
    assert [check["name"] for check in tomllib.loads(text(tmp_path / "t", "toml"))["checks"]] == names
    markdown = text(tmp_path / "m", "md")
    assert all(f"| {name} " in markdown for name in names)


def test_text_of_servers_and_people_is_data_in_every_format(tmp_path: Path) -> None:
    fields = {"label": NASTY, "note": NASTY, "server_flags": NASTY, "tags": {NASTY: NASTY}}
    page = text(tmp_path / "h", "html", **fields)
    assert "script" not in Tables(page).tags
    assert "<script>alert" not in page and "\x1b" not in page
    markdown = text(tmp_path / "m", "md", **fields)
    assert r"\<script\>" in markdown and "<script>" not in markdown and "\x1b" not in markdown
    assert r"\[z\](http" in markdown
    assert tomllib.loads(text(tmp_path / "t", "toml", **fields))["label"] == NASTY


def test_an_open_loop_is_told_by_its_rate_and_never_by_the_most_streams_that_it_may_have(tmp_path: Path) -> None:
    made = loaded(tmp_path, open_loop())
    rows = list(csv.DictReader(io.StringIO(export([made], "csv").decode())))
    assert [(row["c"], row["rate"], row["run"]) for row in rows] == [
        ("", "2.0", ""),
        ("", "2.0", "1"),
        ("", "4.0", ""),
        ("", "4.0", "1"),
    ]
    for form in ("md", "html"):
        assert "512" not in export([made], form).decode()


def test_text_that_a_spreadsheet_would_run_is_made_text(tmp_path: Path) -> None:
    entries: list[Entry] = [e for e in whole() if not isinstance(e, Request)]
    row = next(csv.DictReader(io.StringIO(export([loaded(tmp_path, entries)], "csv").decode())))
    assert not row["flags"].startswith(("=", "+", "-", "@"))


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = Tables(text(tmp_path, "html"))
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert page.links == ["data:,"]
    raw = export([load(tmp_path, "last")], "html").decode()
    assert "url(" not in raw and "@import" not in raw
    assert "prefers-color-scheme:dark" in raw and "width=device-width" in raw


def test_a_session_with_nothing_in_it_is_exported_all_the_same(tmp_path: Path) -> None:
    entries: list[Entry] = [head(plan=Plan(levels=(1,)))]
    for form in TEXT_FORMATS:
        assert isinstance(export([loaded(tmp_path / form, entries)], form), bytes)


def test_several_sessions_lie_over_each_other_where_there_are_curves(tmp_path: Path) -> None:
    names = ("20261115-014455-3f9a", "20261115-014455-3f9b")
    both = [loaded(tmp_path, whole(name, label=label), name) for name, label in zip(names, ("one", "two"), strict=True)]
    page = export(both, "html").decode()
    assert page.count("<li><svg") >= 4
    assert ">one</li>" in page and ">two</li>" in page
    assert 'id="radar"' in page
    assert "two against one: C=2: " in page
    told = export(both, "md").decode()
    assert "## Side by side: A is one, B is two" in told
    assert "## one: Throughput" in told and "## two: Throughput" in told
    with pytest.raises(BadInput, match="csv holds one session"):
        export(both, "csv")


def test_sessions_of_one_label_are_told_apart(tmp_path: Path) -> None:
    names = ("20261115-014455-3f9a", "20261115-014455-3f9b")
    page = export([loaded(tmp_path, whole(name, label="same"), name) for name in names], "html").decode()
    assert all(f">same ({name})</li>" in page for name in names)


def test_a_spreadsheet_meets_no_word_of_python(tmp_path: Path) -> None:
    cells = [cell for row in csv.reader(io.StringIO(text(tmp_path, "csv"))) for cell in row]
    assert "true" in cells
    assert not {"True", "False", "None", "()", "[]", "{}"} & set(cells)


def watched(directory: Path, seconds: int = 5, **readings: Any) -> Loaded:
    """A session beside which two GPUs were read once a second, and one part of a GPU."""
    entries = whole()
    cards: list[dict[str, Any]] = [
        {"uuid": "g0", "index": 0},
        {"uuid": "g1", "index": 1},
        {"uuid": "m0", "index": 0, "part_of": "g0"},
    ]
    samples = [
        Sample(
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


def test_gpus_over_time_in_power_memory_utilisation_and_temperature(tmp_path: Path) -> None:
    source = source_of(watched(tmp_path, **READINGS), named=False)
    found = {chart.name: chart for chart in charts([source])}
    expected = {
        "gpu_power": ("W", 304.0),
        "gpu_memory": ("GB", 24.0),
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


def test_a_reading_that_no_card_gives_has_no_chart(tmp_path: Path) -> None:
    source = source_of(watched(tmp_path, power_w=READINGS["power_w"], simulated=lambda k: True), named=False)
    found = [chart for chart in charts([source]) if chart.name.startswith("gpu")]
    assert [chart.title for chart in found] == ["GPU power (SIMULATED)"]


def test_a_long_session_is_drawn_in_few_points_that_keep_its_mean(tmp_path: Path) -> None:
    source = source_of(watched(tmp_path, seconds=1300, power_w=lambda k: float(k % 7)), named=False)
    (chart,) = (chart for chart in charts([source]) if chart.name == "gpu_power")
    points = chart.series[0].points
    assert len(points) <= 600
    assert sum(y for _, y in points) / len(points) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("form", ["png", "svg"])
def test_every_chart_of_the_list_is_drawn_as_a_picture(tmp_path: Path, form: Any) -> None:
    """`--chart gpu` is all of the GPUs; one alone is named in full."""
    pytest.importorskip("matplotlib", reason="the extra charts is not installed")
    kinds = [
        Request(record=record(900 + k, sent=2280, c=2, stretch=2, type="ab"[k % 2], verdict="pass")) for k in range(4)
    ]
    first = watched(tmp_path, **READINGS)
    entries = [*whole("20261115-014455-3f9b")[:-1], *kinds, whole()[-1]]
    second = loaded(tmp_path, entries, "20261115-014455-3f9b")
    names = ["throughput", "ttft", "contention", "degradation", "radar", "gpu", "gpu_memory"]
    pictures = [export([first, second], form, name) for name in names]
    pictures.append(export([second], form, "side_tasks"))
    assert len(set(pictures)) == len(pictures)
    if form == "svg":
        for title in (b"GPU power", b"GPU memory in use", b"GPU utilisation", b"GPU temperature", b"C=2"):
            assert title in pictures[names.index("gpu")]
        assert b"GPU power" not in pictures[names.index("gpu_memory")]


def test_kinds_of_tasks_have_a_chart_where_there_are_any(tmp_path: Path) -> None:
    kinds = [
        Request(record=record(900 + k, sent=2280, c=2, stretch=2, type="ab"[k % 2], verdict="pass")) for k in range(4)
    ]
    page = export([loaded(tmp_path, [*whole()[:-1], *kinds, whole()[-1]])], "html").decode()
    assert 'id="side_tasks"' in page and "2/2 passed" in page


def test_the_cards_and_the_server_stand_in_the_report_and_in_the_summary(tmp_path: Path) -> None:
    server = Discovered(
        url="http://127.0.0.1:8000", engine="vllm", version="0.11", seats=4, flags={"--max-num-seqs": "4"}
    )
    entries = whole()
    gpus = tuple(
        Gpu(uuid=f"g{k}", index=k, name="NVIDIA H200", memory_total=150_754_820_096, power_limit_w=700.0)
        for k in (0, 1)
    )
    entries[1:1] = [ServerFound(endpoint=0, server=server), Sample(telemetry=Telemetry(t_ns=T0, gpus=gpus))]
    one = loaded(tmp_path, entries)
    page = export([one], "md").decode()
    assert "- GPUs: 2 × NVIDIA H200, 151 GB, 700 W" in page
    assert "- Server: vllm 0.11 · 4 seats · --max-num-seqs 4" in page
    summary = tomllib.loads(export([one], "toml").decode())
    assert summary["gpus"] == ["NVIDIA H200, 151 GB, 700 W"] * 2
    assert summary["servers"][0]["flags"] == {"--max-num-seqs": "4"}


def shown_by_chromium(page: Path, width: int, *words: str) -> tuple[str, str]:
    """The document as the browser has it, and what it wrote to its log; no name can be looked up."""
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
def test_a_real_browser_shows_every_table_and_chart_without_an_error(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(text(tmp_path / "s", "html", label=NASTY, server_flags="--max-num-seqs 2"))
    document, log = shown_by_chromium(page, 1200)
    assert "CONSOLE" not in log, log
    shown = Tables(document)
    assert set(shown.tables) == set(Tables(page.read_text()).tables)
    assert {"Throughput", "Latency", "Fit to publish", "Scaling"} <= set(shown.tables)
    assert document.count('class="chart"') >= 4


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_on_a_phone_nothing_is_wider_than_the_screen_in_dark_and_in_light(tmp_path: Path, scheme: str) -> None:
    """In a frame as wide as a phone, since a window may not be so narrow; a script of the test's own asks it."""
    flags = "--max-num-seqs 2 --model /a/very/long/path/without/any/blank/in/it/" + "x" * 80
    written = export([watched(tmp_path / "s", **READINGS)], "html").decode().replace("coding", flags)
    page = tmp_path / "phone.html"
    page.write_text(
        f'<!doctype html><iframe style="width:390px;height:4000px;border:0" srcdoc="{html.escape(written)}"></iframe>'
        "<script>document.querySelector('iframe').onload = ({target}) => {"
        "const inside = target.contentDocument, look = (of) => getComputedStyle(inside.querySelector(of));"
        "document.title = [inside.documentElement.scrollWidth, inside.documentElement.clientWidth,"
        "look('.words tr').display, look('body').backgroundColor].join(' ')}</script>"
    )
    document, log = shown_by_chromium(page, 1000, f"--blink-settings=preferredColorScheme={int(scheme == 'light')}")
    told = re.search(r"<title>(\d+) (\d+) (\w+) (rgb\([\d, ]+\))</title>", document)
    assert told is not None, document[-500:]
    assert int(told.group(1)) <= int(told.group(2)) <= 390
    assert told.group(3) == "block"
    assert told.group(4) == {"dark": "rgb(20, 23, 26)", "light": "rgb(251, 251, 250)"}[scheme]
    assert "CONSOLE" not in log, log
