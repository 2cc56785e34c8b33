"""Findings and quality lines survive encoding, with their codes."""

from __future__ import annotations

import msgspec

from swarmtui.model.findings import Finding
from swarmtui.model.journal import QualityEntry, entry_decoder, entry_encoder
from swarmtui.model.session import Level
from swarmtui.model.telemetry import QualityFacts
from tests.analysis.level_builders import level

FLAG = Finding(code="in_flight", text="mean in flight 3.5, planned 4")


def test_level_flags_survive_encoding() -> None:
    encoded = msgspec.json.encode(level(4, flags=(FLAG,)))
    assert msgspec.json.decode(encoded)["flags"] == [{"code": "in_flight", "text": "mean in flight 3.5, planned 4"}]
    assert msgspec.json.decode(encoded, type=Level).flags == (FLAG,)


def test_quality_entry_keeps_its_facts() -> None:
    entry = QualityEntry(lines=(), facts=QualityFacts(worker_cpu=0.2, token_sources=("usage",), restarted=True))
    assert entry_decoder.decode(entry_encoder.encode(entry)) == entry
