"""The answer of a session as lines: what is printed, and that a doubt is said beside the result."""

from __future__ import annotations

import csv
import io
from typing import Literal

import msgspec
import pytest

from swarmtui.analysis.answer.answer import answer
from swarmtui.analysis.capacity.marks import level_marks
from swarmtui.analysis.capacity.scaling import scaling
from swarmtui.analysis.limits.slo import SloTally, goodput, parse_slo
from swarmtui.analysis.quality.judge import judge
from swarmtui.model.answer import AnswerPoint
from swarmtui.model.findings import Capacity, Finding, Goodput, SearchedLevel, SearchState, Slots
from swarmtui.model.plan import LevelKey
from swarmtui.model.record import Record
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import HostUse, QualityFacts
from swarmtui.report.answer import answer_rows, point_text
from swarmtui.report.charts import SessionData
from swarmtui.report.data import render_csv
from swarmtui.report.html import render_html
from swarmtui.report.images import render_svg
from swarmtui.report.markdown import render_markdown
from swarmtui.report.session import finding_sentences
from tests.analysis.level_builders import level, summary
from tests.analysis.record_builders import request

BUSY = judge(QualityFacts(host=HostUse(pressure=0.9)))


def answered(found: Summary) -> dict[str, str]:
    found = msgspec.structs.replace(found, scaling=scaling(found.levels, Slots(per_replica=4)))
    return dict(answer_rows(msgspec.structs.replace(found, answer=answer(found, None, "", {}))))


def test_lines_of_a_sweep_answer_the_three_questions() -> None:
    levels = [
        level(1, tps=50, stream=52.0, ttft=0.03),
        level(4, tps=150, stream=40.0, ttft=0.1),
        level(8, tps=151, stream=39.0, ttft=2.0),
    ]
    assert answered(summary(levels)) == {
        "One agent": "first token in 30 ms, then 52.0 tok/s",
        "Result": "best with 4 agents: 150 tok/s in total",
        "At 4": "150 tok/s in total, 40.0 per agent while writing; first token 100 ms (median); answers of 100 tokens",
        "Why no more": "at 8 agents output changes by +1 %, and the first token takes 31 times as long: "
        "all 4 slots are taken",
        "Try next": "beyond C=4 requests only queue: send fewer at once, or give the server more slots",
        "Quality": "ok",
    }


def test_how_it_scales_is_said_once() -> None:
    """The answer says where throughput ends, and why; with an SLO it is about the agents that keep it."""
    levels = [level(1, tps=50, ttft=0.03), level(4, tps=150, ttft=0.1), level(8, tps=120, ttft=2.0)]
    slots = Slots(per_replica=4)
    found = msgspec.structs.replace(summary(levels), scaling=scaling(levels, slots))
    plain = msgspec.structs.replace(found, answer=answer(found, None, "", {}))
    (odd,) = (sentence.text for sentence in finding_sentences(plain))
    assert odd.startswith("throughput fell by 20 % from C=4 to C=8 while all 4 slots were full: ")
    assert plain.answer is not None
    with_slo = msgspec.structs.replace(plain, answer=msgspec.structs.replace(plain.answer, agents=4))
    assert finding_sentences(with_slo)[0].text.startswith("sweet spot C=4 (4 slots); queue forms at C=8")


def test_a_busy_host_is_said_beside_the_result() -> None:
    found = msgspec.structs.replace(summary([level(4, tps=150)]), quality=BUSY)
    said = answered(found)
    assert (said["Doubt"], said["Quality"]) == ("the host was busy", "not sure"), "the cause is said once"


def test_the_first_token_is_its_median_and_of_enough_requests_its_p90() -> None:
    few = AnswerPoint(c=3, ttft_s=0.9, per_stream_tps=None, out_tps=270.0)
    many = msgspec.structs.replace(few, ttft_p90_s=1.5)
    assert point_text(few) == "270 tok/s in total; first token 900 ms (median)"
    assert point_text(many) == "270 tok/s in total; first token 900 ms (median), 1.50 s (p90)"


def test_the_mean_length_of_answers_is_said_where_it_is_known() -> None:
    """It may be far below the limit of the plan; the table of levels has the first token, but no length."""
    point = AnswerPoint(c=3, ttft_s=0.9, tokens_out=11.7, per_stream_tps=164.0, out_tps=195.0)
    said = "195 tok/s in total, 164 per agent while writing; first token 900 ms (median); answers of 12 tokens"
    assert point_text(point) == said
    assert point_text(point, brief=True) == "195 tok/s, 164 each writing; answers of 12 tokens"
    assert point_text(msgspec.structs.replace(point, tokens_out=1.2)).endswith("; answers of 1 token")
    assert "answers" not in point_text(msgspec.structs.replace(point, tokens_out=None))


@pytest.mark.parametrize(
    ("p90", "good", "said"),
    [
        (None, 19, "1.90 s (median), within 2 s in 19 of 20"),
        (1.9, 18, "1.90 s (median), 1.90 s (p90)"),
        # Between two requests, a percentile may be beyond a limit that enough of them kept.
        (2.2, 18, "1.90 s (median), within 2 s in 18 of 20"),
    ],
)
def test_the_first_token_never_contradicts_the_count_that_kept_the_slo(p90: float | None, good: int, said: str) -> None:
    point = AnswerPoint(
        c=3, ttft_s=1.9, ttft_p90_s=p90, ttft_max_s=2.2, ttft_limit_s=2.0, ttft_good=good, ttft_n=20,
        per_stream_tps=None, out_tps=None,
    )  # fmt: skip
    assert point_text(point) == f"first token {said}"


def test_the_median_of_the_answer_is_that_of_the_table_unless_it_contradicts_the_count() -> None:
    """The table of levels has the requests of its window only: there, two more of them were late."""
    slo = parse_slo("ttft_p90=2s")
    levels = [level(4, tps=100, ttft=2.1)]
    records: dict[LevelKey, list[Record]] = {(4, None): [request(0, [1900])] * 19}
    asked = msgspec.structs.replace(summary(levels), goodput=goodput(levels, records, slo))
    found = answer(asked, slo, "ttft_p90=2s", {})
    assert found.at_capacity is not None
    assert "; first token within 2 s in 19 of 19; " in point_text(found.at_capacity)
    levels = [level(4, tps=100, ttft=1.98)]
    asked = msgspec.structs.replace(summary(levels), goodput=goodput(levels, records, slo))
    found = answer(asked, slo, "ttft_p90=2s", {})
    assert found.at_capacity is not None
    assert "; first token 1.98 s (median), within 2 s in 19 of 19; " in point_text(found.at_capacity)


def test_what_was_not_measured_has_no_line() -> None:
    assert answered(summary([])) == {"Result": "nothing was measured"}
    assert answer_rows(summary([])) == ()


def searched(
    c: int, state: Literal["kept", "missed", "unsure"], visits: int = 1, *, cut: bool = False
) -> SearchedLevel:
    return SearchedLevel(c=c, visits=visits, n=16, good=16, state=state, cut=cut)


def differing(c: int, kept: int = 1, missed: int = 1) -> SearchedLevel:
    visits = kept + missed
    return SearchedLevel(c=c, visits=visits, n=36, good=17, state="unsure", kept_visits=kept, missed_visits=missed)


@pytest.mark.parametrize(
    ("kept", "missed", "said"),
    [
        (searched(18, "kept", 2), searched(20, "missed"), "18 kept (confirmed), 20 missed, 19 not tried"),
        (searched(18, "kept"), searched(24, "missed"), "18 kept (seen once only), 24 missed, 19 to 23 not tried"),
        (
            searched(18, "kept", 2, cut=True),
            searched(19, "unsure"),
            "18 kept (its last visit was cut short), 19 missed (not sure yet)",
        ),
        (searched(18, "unsure", 2), searched(19, "missed"), "18 kept (not sure yet), 19 missed"),
        (searched(18, "kept", 2), searched(21, "missed"), "18 kept (confirmed), 21 missed, 19 and 20 not tried"),
        (searched(18, "kept", 2), None, "18 kept (confirmed)"),
        (searched(18, "kept", 2), differing(19), "18 kept (confirmed), 19 kept once, missed once"),
        (searched(18, "kept", 2), differing(19, 3, 2), "18 kept (confirmed), 19 kept 3 times, missed twice"),
        (differing(18), searched(19, "missed"), "18 kept once, missed once, 19 missed"),
        # Close to the limit by itself, but above the range by what the others tell.
        (
            searched(18, "kept", 2),
            msgspec.structs.replace(searched(20, "unsure"), room=-0.2, close=True),
            "18 kept (confirmed), 20 missed by 20 %, 19 not tried",
        ),
    ],
)
def test_levels_that_were_not_tried_and_an_answer_that_was_seen_once_are_said(
    kept: SearchedLevel, missed: SearchedLevel | None, said: str
) -> None:
    slo = parse_slo("ttft_p90=2s")
    search = SearchState(goal="capacity", levels=tuple(filter(None, (kept, missed))))
    found = Capacity(
        slo="ttft_p90=2s", agents=18, low=18, high=18, next_c=missed.c if missed else None, alpha=0.2, visits=2,
        requests=32,
    )  # fmt: skip
    asked = msgspec.structs.replace(summary([level(18, tps=100)]), search=search, capacity=found)
    assert answer(asked, slo, "ttft_p90=2s", {}).border == said
    disturbed = msgspec.structs.replace(asked, quality=BUSY)
    assert not answer(disturbed, slo, "ttft_p90=2s", {}).border, "what was missed proves nothing"


def test_an_answer_with_few_requests_of_its_own_names_the_level_that_shows_it() -> None:
    """2 of 2 requests are no reason for a number that stands large."""
    few = SearchedLevel(c=7, visits=1, n=2, good=2, state="kept", cut=True)
    above = SearchedLevel(c=8, visits=2, n=34, good=34, state="unsure", room=0.21, close=True)
    search = SearchState(goal="capacity", levels=(few, above, searched(16, "missed")))
    found = Capacity(slo="ttft_p90=2s", agents=7, low=7, high=15, next_c=16, alpha=0.2, visits=4, requests=60)
    asked = msgspec.structs.replace(summary([level(c, tps=100) for c in (7, 8)]), search=search, capacity=found)
    said = answer(asked, parse_slo("ttft_p90=2s"), "ttft_p90=2s", {}).border
    assert said == "7 kept (few requests; 34 of 34 at 8), 8 kept with only 21 % to spare, 16 missed"


def test_range_that_is_wider_than_its_levels_says_why() -> None:
    slo, why = parse_slo("ttft_p90=2s"), "runs differ by up to 7 %"
    search = SearchState(goal="capacity", levels=(searched(18, "kept", 2), searched(19, "missed")))
    found = Capacity(
        slo="ttft_p90=2s", agents=18, low=17, high=19, next_c=19, alpha=0.2, visits=3, requests=48,
        findings=(Finding(code="runs_vary", text=why),),
    )  # fmt: skip
    asked = msgspec.structs.replace(summary([level(18, tps=100)]), search=search, capacity=found)
    said = answer(asked, slo, "ttft_p90=2s", {})
    assert said.headline.sentence.startswith("18 agents (17–19) with ")
    assert said.border == f"18 kept (confirmed), 19 missed; {why}: 18 and 19 may go either way"
    report = render_markdown([SessionData("", msgspec.structs.replace(asked, answer=said))]).decode()
    assert report.count(why) == 1


def test_a_server_that_went_away_does_not_end_the_range() -> None:
    """The failures say nothing about how many agents it carries; they are counted of all that were sent."""
    gone = Finding(code="server_gone", text="the server went away or restarted during this level")
    failed = level(
        8,
        by_run=(),
        n=9,
        ok=0,
        errors=16,
        error_counts={"closed_early": 8, "refused": 8},
        complete=False,
        flags=(gone,),
    )
    search = SearchState(goal="capacity", levels=(searched(1, "kept"), searched(4, "unsure"), searched(8, "missed")))
    found = Capacity(slo="ttft_p90=2s", agents=4, low=1, high=7, next_c=8, alpha=0.2, visits=3, requests=48)
    made = msgspec.structs.replace(
        summary([level(1, tps=50), level(4, tps=150), failed]), search=search, capacity=found
    )  # fmt: skip
    said = answer(made, parse_slo("ttft_p90=2s"), "ttft_p90=2s", {})
    assert (said.agents, said.high, said.missed_c) == (1, None, None)
    assert said.headline.sentence.startswith("at least 1 agent with ") and "missed" not in said.headline.sentence
    assert said.limit.sentence == "not known: the server went away or restarted with 8 agents"
    assert said.border == "1 kept (seen once only), 4 had too few requests to tell, 2 and 3 not tried"
    plain = answer(msgspec.structs.replace(made, search=None, capacity=None), None, "", {})
    assert "16 of 16 requests failed" in plain.limit.sentence


def test_exports_of_a_search_carry_the_number_of_agents() -> None:
    slo = parse_slo("ttft_p90=2s")
    search = SearchState(goal="capacity", levels=(searched(18, "kept", 2), searched(20, "missed")))
    found = Capacity(
        slo="ttft_p90=2s", agents=18, low=18, high=19, next_c=20, alpha=0.2, visits=3, requests=48
    )  # fmt: skip
    asked = msgspec.structs.replace(summary([level(c, tps=100) for c in (1, 18, 20)]), search=search, capacity=found)
    one = SessionData("", msgspec.structs.replace(asked, answer=answer(asked, slo, "ttft_p90=2s", {})))
    rows = list(csv.DictReader(io.StringIO(render_csv([one]).decode())))
    assert {(row["agents"], row["agents_low"], row["agents_high"]) for row in rows} == {("18", "18", "19")}
    for page in (render_markdown([one]), render_html([one]), render_svg([one], None), render_svg([one], "throughput")):
        assert "18 agents, perhaps up to 19, with a first token within 2 s" in " ".join(page.decode().split())
    sweep = msgspec.structs.replace(asked, search=None, capacity=None)
    plain = SessionData("", msgspec.structs.replace(sweep, answer=answer(sweep, None, "", {})))
    assert "agents" not in render_csv([plain]).decode().partition("\n")[0]


@pytest.mark.parametrize(
    ("close", "said"),
    [
        ({24: 0.05}, "24 kept with only 5 % to spare"),
        ({24: 0.05, 26: 0.04, 30: 0.02}, "24, 26 and 30 kept with only 2–5 % to spare"),
        ({24: 0.05, 26: -0.03}, "24 kept with only 5 % to spare, 26 missed by 3 %"),
    ],
)
def test_many_levels_that_are_close_to_a_limit_are_named_together(close: dict[int, float], said: str) -> None:
    near = [msgspec.structs.replace(searched(c, "unsure"), room=room, close=True) for c, room in close.items()]
    levels = (searched(20, "kept", 2), *near, searched(32, "missed"))
    search = SearchState(goal="capacity", low=20, high=32, levels=levels)
    found = Capacity(
        slo="ttft_p90=2s", agents=20, low=20, high=31, next_c=32, alpha=0.2, visits=5, requests=80
    )  # fmt: skip
    asked = msgspec.structs.replace(summary([level(20, tps=100)]), search=search, capacity=found)
    border = answer(asked, parse_slo("ttft_p90=2s"), "ttft_p90=2s", {}).border
    assert border == f"20 kept (confirmed), {said}, 32 missed"


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (differing(24), "20 kept (seen once only), 24 kept once, missed once, 26 missed, 21 to 23 and 25 not tried"),
        (
            msgspec.structs.replace(differing(24), by_visit=((1, 18), (16, 18))),
            "20 kept (seen once only), 24 kept once, missed once (1 of 18, then 16 of 18 requests), 26 missed, "
            "21 to 23 and 25 not tried",
        ),
        (searched(24, "missed"), "20 kept (seen once only), 24 missed, 21 to 23 not tried"),
    ],
)
def test_the_level_that_ends_the_range_is_named_beside_one_that_does_not(past: SearchedLevel, said: str) -> None:
    levels = (searched(20, "kept"), past, searched(26, "missed"), searched(52, "missed"))
    search = SearchState(goal="capacity", low=20, high=24, levels=levels)
    slo = parse_slo("ttft_p90=2s")
    high = 25 if past.differs else 23
    found = Capacity(
        slo="ttft_p90=2s", agents=20, low=20, high=high, next_c=24, alpha=0.2, visits=5, requests=80
    )  # fmt: skip
    measured = [level(20, tps=100), level(24, tps=100)]
    tally = SloTally(slo)
    tally.add_counts(24, [(17, 36)])
    judged = Goodput(
        c=24, kept=None, good=17, n=36, share=None, per_s=None, out_tps=None, conditions=tally.conditions()
    )
    asked = msgspec.structs.replace(summary(measured), search=search, capacity=found, goodput=(judged,))
    reply = answer(asked, slo, "ttft_p90=2s", {})
    assert reply.border == said
    assert ("at 24 agents (kept once, missed once) " in reply.limit.sentence) == past.differs


def test_levels_between_the_answer_and_the_first_missed_one_are_named() -> None:
    """12 agents kept it in 34 of 34 requests: without a word, the answer of 11 looks wrong."""
    near = SearchedLevel(c=12, visits=1, n=34, good=34, state="unsure", room=0.05, close=True)
    late = msgspec.structs.replace(near, c=13, good=10, room=-0.05)
    search = SearchState(goal="capacity", levels=(searched(11, "kept", 2), near, late, searched(16, "missed")))
    slo = parse_slo("ttft_p90=2s")
    found = Capacity(slo="ttft_p90=2s", agents=11, low=11, high=14, next_c=13, alpha=0.2, visits=4, requests=99)
    records: dict[LevelKey, list[Record]] = {
        (13, None): [request(0, [1900])] * 10 + [request(0, [2100])] * 24, (16, None): [request(0, [2400])] * 40,
    }  # fmt: skip
    levels = [level(c, tps=100, ttft=0.1 * c) for c in (11, 12, 13, 16)]
    asked = msgspec.structs.replace(
        summary(levels), search=search, capacity=found, goodput=goodput(levels, records, slo)
    )
    said = answer(asked, slo, "ttft_p90=2s", {})
    why = "11 kept (confirmed), 12 kept with only 5 % to spare, 13 missed by 5 %, 16 missed"
    assert said.border == why and said.limit.sentence.startswith("at 13 agents the first token took 2.1 s")
    assert level_marks(levels, answer=said).past == 16, "12 and 13 are within the range"
    vary = Finding(code="runs_vary", text="runs differ by up to 19 %")
    varied = msgspec.structs.replace(asked, capacity=msgspec.structs.replace(found, findings=(vary,)))
    assert answer(varied, slo, "ttft_p90=2s", {}).border == f"{why}; {vary.text}: 12 to 14 may go either way"


@pytest.mark.parametrize("missed", [True, False])
def test_a_level_above_the_answer_that_had_few_requests_is_named(missed: bool) -> None:
    """12 of 12 requests kept it at 8 agents, and the answer is 4."""
    few = SearchedLevel(c=8, visits=1, n=12, good=12, state="unsure", room=0.4)
    search = SearchState(goal="capacity", levels=(searched(4, "kept", 2), few, *([searched(16, "missed")] * missed)))
    found = Capacity(
        slo="ttft_p90=2s", agents=4, low=4, high=15 if missed else None, next_c=16 if missed else None, alpha=0.2,
        visits=4, requests=99,
    )  # fmt: skip
    levels = [level(c, tps=100, ttft=0.1 * c) for c in (4, 8, 16)[: 2 + missed]]
    records: dict[LevelKey, list[Record]] = {(16, None): [request(0, [2400])] * 40}
    judged = goodput(levels, records, parse_slo("ttft_p90=2s")) if missed else ()
    asked = msgspec.structs.replace(summary(levels), search=search, capacity=found, goodput=judged)
    said = answer(asked, parse_slo("ttft_p90=2s"), "ttft_p90=2s", {})
    past, gaps = (", 16 missed", "5 to 7 and 9 to 15") if missed else ("", "5 to 7")
    assert said.border == f"4 kept (confirmed), 8 had too few requests to tell{past}, {gaps} not tried"


def test_levels_close_to_the_limit_are_named_on_a_busy_host_too() -> None:
    """A level that was missed then proves nothing; one that was kept by little is no answer for another reason."""
    near = SearchedLevel(c=12, visits=1, n=34, good=34, state="unsure", room=0.05, close=True)
    search = SearchState(goal="capacity", levels=(searched(11, "kept", 2), near, searched(16, "missed")))
    found = Capacity(slo="ttft_p90=2s", agents=11, low=11, high=15, next_c=16, alpha=0.2, visits=4, requests=99)
    asked = msgspec.structs.replace(
        summary([level(c, tps=100) for c in (11, 12)]), search=search, capacity=found, quality=BUSY
    )
    said = answer(asked, parse_slo("ttft_p90=2s"), "ttft_p90=2s", {})
    assert said.disturbed and said.border == "11 kept (confirmed), 12 kept with only 5 % to spare"
