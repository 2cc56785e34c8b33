"""A search that decided no level has no number of agents, and every surface says so in plain words."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.answer.answer import answer, capacity_headline
from swarmtui.analysis.compare.sessions import compare_pair
from swarmtui.analysis.limits.slo import DEFAULT_SLO, SloTally, parse_slo
from swarmtui.experiments.groups import ListRow
from swarmtui.experiments.runner import result_line
from swarmtui.model.findings import Capacity, Goodput, SearchedLevel, SearchState
from swarmtui.model.plan import Plan
from swarmtui.model.session import Summary
from swarmtui.model.tuning import Start
from swarmtui.report.answer import answer_number, quick_blocks
from swarmtui.report.card import card_svg
from swarmtui.report.charts import SessionData
from swarmtui.report.comparison import pair_answer
from swarmtui.report.html import render_html
from swarmtui.report.markdown import render_markdown
from swarmtui.report.session_list import session_table
from swarmtui.report.text import paint
from swarmtui.report.tuning import result_figures
from swarmtui.sessions.index import SessionRow
from tests.analysis.level_builders import level, summary
from tests.analysis.test_compare_agents import quick_search

SLO = parse_slo(DEFAULT_SLO)
NOT_KNOWN = (
    "how many agents have a first token within 2 s and 20 tok/s each, for 90 % of requests is not known: no level is "
    "decided"
)


def undecided(agents: int, id: str = "20261115-014455-3f9a") -> Summary:
    """A search whose levels had too few requests: the first past `agents` missed the SLO as measured."""
    late = agents + 1
    tally = SloTally(SLO)
    tally.add_counts(late, [(3, 4), (4, 4)])
    judged = Goodput(
        c=late, kept=None, good=3, n=4, share=0.75, per_s=None, out_tps=None, conditions=tally.conditions()
    )
    searched = tuple(
        SearchedLevel(c=c, visits=1, n=4, good=4 if c < late else 3, state="unsure") for c in (*range(1, late), late)
    )
    found = Capacity(slo=DEFAULT_SLO, agents=agents, low=0, high=None, next_c=late, alpha=0.2, visits=2, requests=8)
    made = msgspec.structs.replace(
        summary([level(c, tps=100, stream=80, n=4) for c in range(1, late + 1)], id, plan=Plan(goal="capacity")),
        search=SearchState(goal="capacity", levels=searched),
        capacity=found,
        goodput=(judged,),
    )
    return msgspec.structs.replace(made, answer=answer(made, SLO, "ttft_p90=2s", {}))


def surfaces(found: Summary) -> dict[str, str]:
    assert found.answer is not None
    of = found.answer
    row = SessionRow(
        id=found.session.id, model="m", workload="coding", agents=of.agents, agents_open=of.is_open,
        doubtful=of.is_doubtful, agents_low=of.low, agents_high=of.high,
    )  # fmt: skip
    pairs = [
        compare_pair(*sides)
        for other in (quick_search("20261115-020000-aaaa", 15),)
        for sides in ((found, other), (other, found))
    ]
    return {
        "quick": paint(quick_blocks(found, 60.0, "swarmtui sessions show 1")),
        "list": session_table([ListRow(row)], {}, ("answer",)).rows[0][0].text,
        "compare": "\n".join(paint([pair_answer(pair, {})]) for pair in pairs),
        "card": card_svg(found),
        "Markdown": render_markdown([SessionData("", found)]).decode(),
        "HTML": render_html([SessionData("", found)]).decode(),
    }


@pytest.mark.parametrize("agents", [0, 2])
def test_no_surface_says_none_or_more(agents: int) -> None:
    shown = surfaces(undecided(agents))
    for name, text in shown.items():
        said = " ".join(text.split())
        assert "0 or more" not in said and "not even one" not in said and "at least 0" not in said, (name, said)
    for why in ("no level was decided before; 15 now", "no level was decided now; 15 before"):
        assert why in " ".join(shown["compare"].split())


def test_without_a_level_that_kept_it_so_far_the_number_is_not_known() -> None:
    found = undecided(0)
    assert found.answer is not None and found.answer.headline.code == "agents_not_known"
    assert answer_number(found.answer) == "?"
    shown = surfaces(found)
    assert shown["list"] == "not known"
    for name in ("quick", "Markdown", "HTML"):
        assert NOT_KNOWN in " ".join(shown[name].split()).replace("How many", "how many"), name
    assert [step.code for step in found.answer.next] == ["unsure_search"], "nothing says that one agent is too many"


def test_a_comparison_says_the_most_likely_number() -> None:
    said = " ".join(surfaces(undecided(2))["compare"].split())
    pair = compare_pair(undecided(2), quick_search("20261115-020000-aaaa", 15))
    assert pair.agents is not None and pair.agents.numbers == ("?2", "15"), "as large as the answer of each"
    assert "not known (most likely 2) → 15 Changed" in said and "15 → not known (most likely 2)" in said


def test_while_a_search_ends_its_number_is_that_of_the_levels() -> None:
    """Its range is judged with the measurement quality: until then nothing is said to be undecided."""
    missed = Capacity(slo=DEFAULT_SLO, agents=0, low=0, high=0, next_c=1, alpha=0.2, visits=2, requests=40)
    assert capacity_headline(missed, SLO).startswith("not even one agent")


def test_a_start_of_a_tune_that_decided_nothing_has_no_number() -> None:
    start = Start(
        flags={"--parallel": "4"},
        state="done",
        c=1,
        out_tps=90.0,
        agents=0,
        agents_low=0,
        agents_high=None,
        step="screen",
    )
    assert result_line(start).startswith("--parallel 4: not known")
    assert result_figures(start)["agents"] == "not known"
