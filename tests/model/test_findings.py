"""Findings with codes, and files of schema 1 that stored their texts alone."""

from __future__ import annotations

import msgspec

from swarmtui.model.findings import Check, Finding, Scaling
from swarmtui.model.session import Level, QualityEntry, entry_decoder, entry_encoder
from swarmtui.model.telemetry import QualityFacts, QualityLine
from tests.analysis.level_builders import level

FLAG = Finding(code="in_flight", text="mean in flight 3.5, planned 4")


def test_level_flags_survive_encoding() -> None:
    encoded = msgspec.json.encode(level(4, flags=(FLAG,)))
    assert msgspec.json.decode(encoded)["flags"] == [{"code": "in_flight", "text": "mean in flight 3.5, planned 4"}]
    assert msgspec.json.decode(encoded, type=Level).flags == (FLAG,)


def test_schema_1_level_flags_are_readable() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(level(4)))
    stored["flags"] = ["achieved C 3.5, wanted 4"]
    assert msgspec.convert(stored, Level).flags == (Finding(code="", text="achieved C 3.5, wanted 4"),)


def test_schema_1_scaling_is_readable() -> None:
    stored = b'{"seats": {"per_replica": 4}, "anomalies": ["throughput fell"], "refused": {"knee": "too few"}}'
    found = msgspec.json.decode(stored, type=Scaling)
    assert found.anomalies == (Finding(code="", text="throughput fell"),)
    assert found.refused == {"knee": Finding(code="", text="too few")}
    assert found.slots is not None and found.slots.total == 4


def test_schema_1_quality_lines_and_checks_are_readable() -> None:
    line = b'{"name": "clock", "state": "ok", "value": "0 steps", "sentence": "even"}'
    assert msgspec.json.decode(line, type=QualityLine).code == ""
    check = b'{"name": "errors", "state": "ok", "value": "0", "limit": "0", "sentence": "none"}'
    assert msgspec.json.decode(check, type=Check).code == ""
    entry = entry_decoder.decode(b'{"kind": "trust", "lines": [%b], "lag_p99_s": 0.001}' % line)
    assert isinstance(entry, QualityEntry) and entry.facts is None and entry.lag_p99_s == 0.001


def test_quality_entry_keeps_its_facts() -> None:
    entry = QualityEntry(lines=(), facts=QualityFacts(worker_cpu=0.2, token_sources=("usage",), restarted=True))
    assert entry_decoder.decode(entry_encoder.encode(entry)) == entry
