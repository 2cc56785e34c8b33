"""The result says without a key why the answer is no higher level, and what to expect of more slots."""

from __future__ import annotations

import re

import msgspec
import pytest

from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, NextStep, SlotsForecast
from swarmtui.model.findings import SearchedLevel, SearchState
from swarmtui.report.answer import app_step, leading_steps, step_text, steps_text
from tests.analysis.level_builders import level
from tests.tui.frame_builders import ended_app, frame
from tests.tui.screen_text import screen_text

SLO = "a first token within 2 s and 20 tok/s each, for 90 % of requests"
WHY = "7 kept (confirmed), 8 kept with only 3 % to spare, 9 missed; runs differ by up to 19 %: 8 may go either way"
SLOTS = "at 10 agents 4 of 7 first tokens took more than 2 s: all 4 slots are taken; the KV cache has room (2 % used)"
SETTING = "--parallel 8 --ctx-size 65536"
EXPECTED = "up to 24 agents, each writes about 382 tok/s instead of 765"
IF = "(prediction, if the total does not grow and memory allows it)"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_why_not_one_more_and_what_to_expect_need_no_key(size: tuple[int, int]) -> None:
    answer = Answer(
        headline=AnswerSentence(code="capacity", sentence=f"7 agents, perhaps up to 9, with {SLO} (80 % sure)"),
        agents=7, low=7, high=9, missed_c=10, slo="ttft_p90=2s", confidence=0.8,
        at_capacity=AnswerPoint(c=7, ttft_s=1.4, per_stream_tps=765.0, out_tps=1362.0, tokens_out=98),
        limit=AnswerSentence(code="slots", sentence=f"{WHY}; {SLOTS}"),
        next=(NextStep(code="more_slots", sentence=f"{SETTING}: {EXPECTED} {IF}", command=SETTING),),
        border="7 kept (confirmed), 8 close to the limit, 10 missed",
    )  # fmt: skip
    kept = tuple(
        SearchedLevel(c=c, visits=1, n=17, good=17, state="kept", room=room)
        for c, room in ((1, 0.5), (4, 0.4), (7, 0.2))
    )
    near = SearchedLevel(c=8, visits=1, n=17, good=17, state="unsure", room=0.03, close=True)
    found = (*kept, near, SearchedLevel(c=10, visits=1, n=7, good=3, state="missed", room=-0.4))
    shown = msgspec.structs.replace(
        frame(7), status="ended", answer=answer, provisional=(), levels=tuple(level(one.c, tps=80.0) for one in found),
        search=SearchState(goal="capacity", low=7, high=8, levels=found),
    )  # fmt: skip
    app = ended_app(shown)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = screen_text(app)
        said = " ".join(re.sub("[┃│]", " ", screen).split())
        assert "How sure each end 80 % sure: 7 kept (confirmed), 8" in said, screen
        assert said.count("80 %") == 1, "how sure it is, is said once"
        for part in (f"Why no more {WHY}", SLOTS, f"Try next {SETTING}: {EXPECTED} {IF}"):
            assert part in said, screen
        assert "✓? 17 of 17" in said, "the sign that the sentence explains"


def test_a_setting_that_is_tried_after_a_surer_measurement_has_no_forecast_before() -> None:
    """Nothing is predicted from a number that is in doubt; a user looks for it there."""
    slots = NextStep(
        code="more_slots", sentence=f"{SETTING}: more agents start at once", command=SETTING,
        forecast=SlotsForecast(setting=SETTING, slots=8),
    )  # fmt: skip
    again = NextStep(code="quiet_host", sentence="measure again when the host is quiet")
    assert [step_text(step) for step in leading_steps((again, slots))][1] == f"{SETTING} (no forecast until then)"
    assert leading_steps((slots,)) == (slots,)
    other = NextStep(code="narrow_kv", sentence="--kv-cache-dtype fp8: +31 % agents", command="--kv-cache-dtype fp8")
    assert leading_steps((again, other))[1].sentence == "--kv-cache-dtype fp8"


def test_steps_are_said_in_the_order_in_which_they_are_done() -> None:
    flag = NextStep(code="left_out_flag", sentence="add --ctx-size 32768", command="--ctx-size 32768")
    surer = NextStep(code="surer_each", sentence="a surer search of each setting decides", command="swarmtui capacity")
    said = "add --ctx-size 32768; restart with it; then press N: a surer search of each setting decides"
    assert steps_text([app_step(step) for step in (flag, surer)], "R") == said
    assert steps_text([flag], "R") == "add --ctx-size 32768; restart with it, then press R"
    assert steps_text([flag]) == "add --ctx-size 32768", "a simulator is not restarted"
