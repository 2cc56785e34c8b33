from __future__ import annotations

import msgspec
import pytest

from swarmtui.model.session import Session
from swarmtui.model.session_tags import ModelFacts, Series, model_facts_from_tags, series_from_tags
from tests.sessions.session_builders import head


@pytest.mark.parametrize(
    ("tags", "series"),
    [
        ({"probe": "sim:moe-tp1"}, Series(kind="probe", name="sim:moe-tp1")),
        ({"tune": "20261115-tune", "gpu": "H200"}, Series(kind="tune", name="20261115-tune")),
        ({"ab": "graphs", "side": "B"}, Series(kind="ab", name="graphs", side="B")),
        ({"side": "B"}, None),
        ({}, None),
    ],
)
def test_series_is_read_from_the_tags_of_older_sessions(tags: dict[str, str], series: Series | None) -> None:
    assert series_from_tags(tags) == series


def test_model_facts_are_read_from_tags() -> None:
    tags = {"active_bytes": "1.65GB", "gpu_bandwidth": "936 GB/s", "experts": "8/128", "heads": "40"}
    assert model_facts_from_tags(tags) == ModelFacts(
        active_bytes=1.65e9, gpu_bandwidth=936e9, experts=(8, 128), heads=40
    )


def test_session_of_schema_1_gets_series_and_model_facts_from_its_tags() -> None:
    session = msgspec.to_builtins(head(tags={"probe": "sim:moe-tp1", "heads": "40"}).session)
    del session["series"], session["model_facts"]
    old = msgspec.convert(session, Session)
    assert (old.series, old.model_facts) == (Series(kind="probe", name="sim:moe-tp1"), ModelFacts(heads=40))


def test_unreadable_model_facts_count_as_not_given() -> None:
    assert model_facts_from_tags({"active_bytes": "much", "experts": "8", "heads": "0", "gpu": "H200"}) is None
