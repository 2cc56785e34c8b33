from __future__ import annotations

import csv
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
from swarmtui.model.session import Entry, Request, Sample
from swarmtui.model.telemetry import Gpu, Telemetry
from swarmtui.sessions.export import FORMATS, export
from swarmtui.sessions.store import Loaded, load
from tests.sessions.made_sessions import T0, head, record, whole, write

NASTY = "<script>alert(1)</script> | *x* `y` [z](http://e) \x1b[31m =cmd()"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
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
        alone = export([one], form, "contention")
        assert b"Contention" in alone and b"Output throughput" not in alone


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match=r"pip install 'swarmtui\[charts\]'"):
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
    with pytest.raises(BadInput, match="csv holds one session"):
        export(both, "csv")


def test_gpu_power_and_kinds_of_tasks_have_charts_where_there_are_any(tmp_path: Path) -> None:
    entries = whole()
    gpus = [Gpu(uuid="g", index=0, name="x", simulated=True, power_w=300.0 + k) for k in range(5)]
    samples = [Sample(telemetry=Telemetry(t_ns=T0 + k * 10**9, gpus=(gpu,))) for k, gpu in enumerate(gpus)]
    kinds = [
        Request(record=record(900 + k, sent=2280, c=2, stretch=2, type="ab"[k % 2], verdict="pass")) for k in range(4)
    ]
    page = export([loaded(tmp_path, [*entries[:-1], *samples, *kinds, entries[-1]])], "html").decode()
    assert "GPU power (SIMULATED)" in page
    assert 'id="side_tasks"' in page and "2/2 passed" in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_real_browser_shows_every_table_and_chart_without_an_error(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(text(tmp_path / "s", "html", label=NASTY, server_flags="--max-num-seqs 2"))
    shot = tmp_path / "shot.png"
    words = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--enable-logging=stderr", "--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=400,2000", "--dump-dom", f"--screenshot={shot}", page.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "CONSOLE" not in ran.stderr, ran.stderr
    shown = Tables(ran.stdout)
    assert set(shown.tables) == set(Tables(page.read_text()).tables)
    assert {"Throughput", "Latency", "Fit to publish", "Scaling"} <= set(shown.tables)
    assert ran.stdout.count('class="chart"') >= 4
    assert shot.stat().st_size > 20_000
