from __future__ import annotations

from swarmtui.model.session_tags import ModelFacts, model_facts_from_tags


def test_model_facts_are_read_from_tags() -> None:
    tags = {"active_bytes": "1.65GB", "gpu_bandwidth": "936 GB/s", "experts": "8/128", "heads": "40"}
    assert model_facts_from_tags(tags) == ModelFacts(
        active_bytes=1.65e9, gpu_bandwidth=936e9, experts=(8, 128), heads=40
    )


def test_unreadable_model_facts_count_as_not_given() -> None:
    assert model_facts_from_tags({"active_bytes": "much", "experts": "8", "heads": "0", "rack": "4"}) is None
