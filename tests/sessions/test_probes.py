from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from swarmtui.model.journal import End, Entry, RequestEntry, ServerEntry, StageEnd, StageStart
from swarmtui.model.record import Record
from swarmtui.model.session_tags import Series
from swarmtui.model.telemetry import DiscoveredServer
from swarmtui.sessions.probes import probes_by_target
from swarmtui.sessions.store import write_summary
from tests.sessions.session_builders import T0, head, record, write_session

PROBE = Series(kind="probe", name="http://127.0.0.1:8000")


def write_probe(
    root: Path, name: str, made: Record | None = None, entries: Sequence[Entry] = (), **fields: object
) -> Path:
    directory = write_session(
        root / name,
        [
            head(name, **({"series": PROBE} | fields)),
            *entries,
            StageStart(number=1, t_ns=T0, c=1, run=1, phase="level", of=1),
            RequestEntry(record=made or record(1)),
            StageEnd(number=1, t_ns=T0 + 10**9, complete=True),
            End(t_ns=T0 + 10**9, state="done"),
        ],
    )
    write_summary(directory)
    return directory


def test_probe_whose_response_arrives_in_one_piece_has_the_rate_of_the_whole_request(tmp_path: Path) -> None:
    write_probe(tmp_path, "20261115-010000-aaaa", record(1, t_first_ns=T0 + 10**8, t_last_ns=T0 + 10**8))
    ((found,),) = probes_by_target(tmp_path).values()
    assert found.wall and found.tps == pytest.approx(100.0)


def test_probes_are_grouped_by_target(tmp_path: Path) -> None:
    write_probe(tmp_path, "20261115-010000-aaaa", record(1, engine_decode_tps=101.0))
    write_probe(tmp_path, "20261115-020000-aaaa")
    write_probe(tmp_path, "20261115-030000-aaaa", workload="chat")
    write_probe(tmp_path, "20261115-040000-aaaa", series=None)
    found = probes_by_target(tmp_path)
    assert sorted(found) == ["http://127.0.0.1:8000 qwen3 chat", "http://127.0.0.1:8000 qwen3 coding"]
    older, newer = found["http://127.0.0.1:8000 qwen3 coding"]
    assert (newer.id, newer.engine_tps, older.engine_tps) == ("20261115-020000-aaaa", None, 101.0)
    assert older.tps == pytest.approx(100.0)
    assert older.ttft_s == pytest.approx(0.05)


def test_changed_server_is_noticed_even_across_probes_that_do_not_know_it(tmp_path: Path) -> None:
    def server(version: str) -> ServerEntry:
        return ServerEntry(endpoint=0, server=DiscoveredServer(url="http://127.0.0.1:8000", version=version))

    for hour, entries in enumerate(([server("1.0")], [], [server("1.0")], [server("1.1")], [])):
        name = f"20261115-0{hour}0000-aaaa"
        write_probe(tmp_path, name, entries=entries)
    (probes,) = probes_by_target(tmp_path).values()
    assert [probe.server_changed for probe in probes] == [False, False, False, True, False]


def test_damaged_probe_is_skipped(tmp_path: Path) -> None:
    write_probe(tmp_path, "20261115-010000-aaaa")
    broken = write_probe(tmp_path, "20261115-020000-aaaa")
    (broken / "detail.json").write_bytes(b"{\xff")
    (tmp_path / "20261115-030000-aaaa").mkdir()
    assert [len(probes) for probes in probes_by_target(tmp_path).values()] == [1]
