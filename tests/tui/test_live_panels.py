"""What stays visible in the panels of a live screen, and by which figures an SLO is judged in them."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmtui.analysis.limits.slo import SloTally, parse_slo
from swarmtui.model.answer import Answer, AnswerSentence
from swarmtui.model.client_protocol import Ended, FirstTokens
from swarmtui.model.findings import Goodput, SearchState, Slots
from swarmtui.model.telemetry import HistoryPoint, QualityLine, ServerState
from swarmtui.tui.app import SwarmApp
from swarmtui.tui.live.levels import levels_view, shown_rows
from swarmtui.tui.live.machine import MachinePanel, machine_view
from swarmtui.tui.live.now import now_view
from swarmtui.tui.live.quality import quality_lines
from tests.analysis.level_builders import level
from tests.tui.conftest import Until
from tests.tui.frame_builders import RecordingSource, frame, live_data, model_of
from tests.tui.screen_text import TOUCHING, screen_text, text_of
from tests.tui.test_views import figures


def test_the_first_token_is_always_the_median_and_the_percentile_that_the_slo_limits_stands_beside_it() -> None:
    """One figure with one label while a level warms up, is measured and has ended, as in the curve and in the table."""
    tally = SloTally(parse_slo("ttft_p90=2s"))
    tally.add_counts(4, [(4, 5)])
    (share,) = tally.conditions()
    seen = msgspec.structs.replace(frame(4), slo="ttft_p90=2s", ttft_s=1.47)
    known = FirstTokens(limit_s=2.0, percentile=90, in_time=4, late=1, oldest_s=1.2, percentile_s=2.84, awaited=False)
    name = "first token (10 s), median"
    assert figures(msgspec.structs.replace(seen, first_tokens=known))[name] == ("1.47 s", "p90 2.84 s")
    # It has no first token yet, or no request is measured yet.
    late = msgspec.structs.replace(known, percentile_s=1.44, awaited=True)
    assert figures(msgspec.structs.replace(seen, first_tokens=late))[name] == ("1.47 s", "p90 > 1.4 s")
    assert figures(seen)[name] == ("1.47 s", "")
    # At the end, too few requests have no percentile: it is past the limit, or at most the longest time.
    kept = msgspec.structs.replace(share, good=5)
    for condition, text in ((share, "> 2 s"), (kept, "≤ 1.20 s")):
        few = Goodput(c=4, n=5, good=4, share=0.8, per_s=None, out_tps=None, kept=None, conditions=(condition,))
        ended = msgspec.structs.replace(seen, status="ended", levels=(level(c=4, ttft=1.2),), goodput=(few,))
        shown = now_view(live_data(model_of(ended), has_ended=True), 20).figures[2]
        assert (shown.value, shown.units[0], shown.note) == ("1.20 s", "first token, median", f"p90 {text}")
    # The requests of its window are not all that were judged: the longest of them may be past a limit that is kept.
    ended = msgspec.structs.replace(ended, levels=(level(c=4, ttft=2.2),))
    assert now_view(live_data(model_of(ended), has_ended=True), 20).figures[2].note == "p90 ≤ 2.00 s"


@pytest.mark.parametrize("ttft_s", [None, 0.0087, 0.0428, 0.157, 1.6, 23.4])
async def test_the_label_of_the_first_token_keeps_its_words_and_its_place(ttft_s: float | None) -> None:
    known = FirstTokens(limit_s=2.0, percentile=90, in_time=4, late=1, oldest_s=1.2, percentile_s=2.84, awaited=True)
    for first_tokens in (None, known):
        seen = msgspec.structs.replace(frame(4), slo="ttft_p90=2s", ttft_s=ttft_s, first_tokens=first_tokens)
        app = SwarmApp(source=RecordingSource(model_of(seen)))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            (line,) = [line for line in screen_text(app).splitlines() if "TTFT now" in line]
            assert "p90" not in line


def test_the_rate_of_an_agent_says_nothing_of_slots_which_would_read_as_slots_of_each_agent() -> None:
    assert figures(msgspec.structs.replace(frame(4), slots=None))["per agent while it writes"][1].endswith("active")
    few = msgspec.structs.replace(frame(4), slots=Slots(per_replica=2))
    assert figures(few)["per agent while it writes"][1] == ""


async def test_a_small_table_has_the_rows_around_the_running_level_without_a_gap() -> None:
    """The answer is among them where it fits."""
    search = SearchState(goal="capacity", low=4, at_least=4, high=6, visits=8, next_c=16, step="check")
    for loads, shown in (
        ((1, 2, 4, 6, 8, 12, 32), ("▸4 ", "▼6 ", " 8 ", " 12 ", "○16 ", "↑↓ 3–7 of 8")),
        ((1, 2, 4, 6, 8, 10, 12, 14, 32), (" 10 ", " 12 ", " 14 ", "○16 ", " 32 ", "↑↓ 6–10 of 10")),
    ):
        levels = tuple(level(c=c) for c in loads)
        seen = msgspec.structs.replace(frame(16), levels=levels, search=search)
        app = SwarmApp(source=RecordingSource(model_of(seen)))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert all(part in screen_text(app) for part in shown), screen_text(app)
            assert not TOUCHING.search(screen_text(app)), "words touch a frame"


@given(st.data(), st.integers(1, 12), st.integers(1, 12))
def test_the_rows_of_a_small_table_have_no_gap_and_the_first_pinned_one(
    data: st.DataObject, total: int, room: int
) -> None:
    row = st.integers(0, total - 1)
    pinned = tuple(data.draw(st.lists(row, unique=True, max_size=3)))
    view = levels_view([level(c) for c in range(1, total + 1)])._replace(pinned=pinned, compared=())
    rows = shown_rows(view, room)
    assert len(rows) == min(room, total) and rows.start >= 0 and rows.stop <= total
    assert not pinned or pinned[0] in rows
    if pinned and max(pinned) - min(pinned) < room:
        assert {*pinned} <= {*rows}


async def test_the_lines_of_the_server_say_where_they_are_and_scroll_beside_other_panels() -> None:
    def heading(app: SwarmApp) -> str:
        return next(line for line in screen_text(app).splitlines() if "[3]" in line)

    seen = frame(4)
    assert seen.telemetry is not None
    (gpu,) = seen.telemetry.gpus
    gpus = tuple(msgspec.structs.replace(gpu, uuid=str(n), index=n) for n in range(12))
    seen = msgspec.structs.replace(seen, telemetry=msgspec.structs.replace(seen.telemetry, gpus=gpus))
    app = SwarmApp(source=RecordingSource(model_of(seen)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert "↑↓ 1–" in heading(app)
        await pilot.press("end")
        await pilot.pause()
        assert "↑↓ 1–" not in heading(app) and "↑↓ " in heading(app)


def test_what_the_server_reports_says_that_it_is_its_own_and_how_old_without_a_paint_at_each_frame() -> None:
    """Agents that wait are counted now, the queue of the server was read before: two counts of one moment differ."""
    seen = frame(4)
    assert seen.telemetry is not None
    server = ServerState(engine="llama.cpp", running=2.0, waiting=9.0)
    read = msgspec.structs.replace(seen.telemetry, gpus=(), servers=(server,), servers_t_ns=seen.t_ns)
    slots = Slots(per_replica=2)

    def said(age_s: float, width: int, height: int, ended: bool = False) -> tuple[str, str]:
        later = msgspec.structs.replace(seen, t_ns=seen.t_ns + round(1e9 * age_s), telemetry=read, slots=slots)
        panel = MachinePanel()
        panel.view = machine_view(live_data(model_of(later), has_ended=ended))
        title, *lines = panel.draw(width, height)
        (line,) = [line for line in lines if "waiting" in text_of([line])]
        return text_of([line]).strip(), text_of([title]).rpartition("─ ")[2].strip(" ─╮")

    long = "server: 2 of 2 slots running · 9 waiting"
    assert {said(age_s, 90, 20) for age_s in (0.1, 0.9, 1.6, 2.4)} == {(long, "server read a moment ago")}
    assert said(12.4, 90, 20) == said(12.9, 90, 20) == (long, "server read 12 s ago")
    assert said(1.0, 44, 4) == (long, "read a moment ago")
    assert said(1.0, 38, 4)[0] == "server: 2 of 2 running · 9 waiting"
    assert said(12.4, 90, 20, ended=True)[1] == "[3] GPU, server"


async def test_a_level_without_a_figure_has_a_dash_in_place_of_a_bar(until: Until) -> None:
    """A blank would read as an empty queue, which is what the first level had."""
    queues = ((1, 20.0, 0.0), (2, 30.0, None), (4, 40.0, 8.0))
    levels = tuple(level(c, tps=tps, stream=10.0, ttft=1.0, queued=queue) for c, tps, queue in queues)
    live = model_of(msgspec.structs.replace(frame(4), status="ended", levels=levels))
    live.apply(Ended("done", "", "/nowhere"))
    app = SwarmApp(source=RecordingSource(live))
    async with app.run_test(size=(120, 40)):
        await until(lambda: "queued (mean)" in screen_text(app))
        rows = [row for row in screen_text(app).splitlines() if re.search("–{5}", row)]
        assert len(rows) == 1 and re.search(" {5}–{5,}█{5}", rows[0]), screen_text(app)


@pytest.mark.parametrize(("ttft_s", "end"), [(0.123, "150 ms"), (1.1, "1.2 s")])
async def test_each_sparkline_of_a_small_terminal_has_both_ends_of_its_scale(ttft_s: float, end: str) -> None:
    seen = frame(4)
    point = HistoryPoint(
        t_ns=seen.t_ns, c=4, in_flight=4, waiting=14, out_tps=1420.0, per_stream_tps=355.0, ttft_s=ttft_s, errors=0
    )
    app = SwarmApp(source=RecordingSource(model_of(msgspec.structs.replace(seen, points=(point,)))))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows = screen_text(app).splitlines()
        above = next(at for at, row in enumerate(rows) if "TTFT now" in row)
        upper, lower = (re.findall(r"[\d.,]+k?(?: m?s)?", row) for row in rows[above + 1 : above + 3])
        assert upper == ["1,500", "400", end, "15"] and lower == ["0"] * 4


@pytest.mark.parametrize(
    ("quality", "first"),
    [
        ({"connections": ("note", ())}, "none of these remarks changes the number of agents"),
        ({"coalesced_chunks": ("note", ("stall",))}, "none of these remarks changes the number of agents"),
        ({"host_clocks": ("doubtful", ("output",))}, "none of these remarks changes the number of agents"),
        ({"in_flight": ("doubtful", ("ttft",))}, "may change the number of agents: in_flight"),
        ({"turnaround": ("ok", ())}, "● turnaround"),
    ],
)
def test_the_quality_of_a_result_says_first_what_it_means_for_the_number_of_agents(
    quality: dict[str, tuple[Literal["ok", "note", "doubtful"], tuple[str, ...]]], first: str
) -> None:
    lines = tuple(
        QualityLine(code=code, name=code, state=state, value="1 %", sentence="", inexact=inexact)
        for code, (state, inexact) in quality.items()
    )
    said = AnswerSentence(code="capacity", sentence="20 agents")
    answer = Answer(headline=said, limit=said, agents=20, slo="ttft_p90=2s")
    ended = msgspec.structs.replace(frame(4), status="ended", quality=lines, answer=answer)
    assert text_of(quality_lines(ended, 78)).strip().startswith(first)
    # A run that is not over, and one without an SLO, have no number of agents.
    for other in (None, msgspec.structs.replace(answer, agents=None)):
        shown = text_of(quality_lines(msgspec.structs.replace(ended, answer=other), 78))
        assert "number of agents" not in shown
