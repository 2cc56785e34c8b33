"""Screens get what the hardware allows at each level, live and in a replay, where model and GPU are known."""

from __future__ import annotations

import msgspec
import pytest

from swarmtui.analysis.speed_of_light.session import session_limits
from swarmtui.model.journal import Head, ServerEntry
from swarmtui.model.session_tags import ModelFacts
from swarmtui.model.telemetry import Telemetry
from swarmtui.report.session import session_facts
from swarmtui.state.session_state import SessionState
from tests.analysis.level_builders import session, summary
from tests.analysis.test_session_limits import GPU, decoding, served


def test_frame_has_the_limit_of_each_level() -> None:
    state = SessionState(0)
    state.apply(Head(session=session(), pid=1))
    state.levels = (decoding(1), decoding(8))
    assert state.frame(1, rows=False).limit == ()  # the model is not known yet
    state.apply(ServerEntry(endpoint=0, server=served(gpus=("a",))))
    assert state.frame(2, rows=False).limit == ()  # nor is the GPU
    state.add_sample(Telemetry(t_ns=3, gpus=(GPU,)))
    (one, limit), (eight, higher) = state.frame(4, rows=False).limit
    assert (one, eight) == (1, 8) and limit == pytest.approx(315, abs=1) and higher > 7 * limit
    state.levels = (*state.levels, decoding(16))
    assert [c for c, _ in state.frame(5, rows=False).limit] == [1, 8, 16]


def test_tags_are_enough_for_a_limit() -> None:
    facts = ModelFacts(active_bytes=1.65e9, gpu_bandwidth=936e9)
    state = SessionState(0)
    state.apply(Head(session=session(model_facts=facts), pid=1))
    state.levels = (decoding(1),)
    ((c, limit),) = state.frame(1, rows=False).limit
    assert c == 1 and limit == pytest.approx(936 / 1.65)


def test_limits_of_the_summary_stay_after_the_end() -> None:
    light = session_limits([decoding(1)], [served(gpus=("a",))], [GPU], None, {}, None)
    made = msgspec.structs.replace(summary([decoding(1)]), speed_of_light=light)
    state = SessionState(0)
    state.apply(Head(session=session(), pid=1))
    state.finish(made)
    ((c, limit),) = state.frame(1, rows=False).limit
    assert c == 1 and limit == pytest.approx(315, abs=1)


def test_result_says_why_the_limit_is_not_known() -> None:
    levels = [decoding(1)]
    elsewhere = served(None, shape_problem="the files of acme/tiny were not found on this host")
    for server, words in ((elsewhere, "acme/tiny were not found"), (served(), None)):
        light = session_limits(levels, [server], [GPU], None, {}, None)
        made = msgspec.structs.replace(summary(levels), speed_of_light=light)
        found = dict(session_facts(made)).get("Hardware limit")
        assert (found is None) if words is None else (found is not None and words in found and "--model-path" in found)
