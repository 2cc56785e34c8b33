from __future__ import annotations

from pathlib import Path

import pytest

from swarmtui.model.session import End, Request, StretchEnd, StretchStart
from swarmtui.sessions.probes import TAG, probes_by_target
from swarmtui.sessions.store import write_summary
from tests.sessions.made_sessions import T0, head, record, write


def made_probe(root: Path, name: str, engine: float | None = None, **fields: object) -> Path:
    tags = {TAG: "http://127.0.0.1:8000"}
    directory = write(
        root / name,
        [
            head(name, **({"tags": tags} | fields)),
            StretchStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=1),
            Request(record=record(1, engine_decode_tps=engine)),
            StretchEnd(number=1, t_ns=T0 + 10**9, complete=True),
            End(t_ns=T0 + 10**9, state="done"),
        ],
    )
    write_summary(directory)
    return directory


def test_probes_are_found_by_what_they_measured_with_client_and_engine_rates(tmp_path: Path) -> None:
    made_probe(tmp_path, "20261115-010000-aaaa", engine=101.0)
    made_probe(tmp_path, "20261115-020000-aaaa")
    made_probe(tmp_path, "20261115-030000-aaaa", workload="chat")
    made_probe(tmp_path, "20261115-040000-aaaa", tags={})
    found = probes_by_target(tmp_path)
    assert sorted(found) == ["http://127.0.0.1:8000 qwen3 chat", "http://127.0.0.1:8000 qwen3 coding"]
    newer, older = found["http://127.0.0.1:8000 qwen3 coding"]
    assert (newer.id, newer.engine_tps, older.engine_tps) == ("20261115-020000-aaaa", None, 101.0)
    assert older.tps == pytest.approx(100.0)
    assert older.ttft_s == pytest.approx(0.05)


def test_a_damaged_probe_never_blocks_the_others(tmp_path: Path) -> None:
    made_probe(tmp_path, "20261115-010000-aaaa")
    broken = made_probe(tmp_path, "20261115-020000-aaaa")
    (broken / "detail.json").write_bytes(b"{\xff")
    (tmp_path / "20261115-030000-aaaa").mkdir()
    assert [len(probes) for probes in probes_by_target(tmp_path).values()] == [1]
