"""A session names the engine of its endpoint and samples its metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarmtui.model.telemetry import ServerState
from swarmtui.sessions.journal import Journal, read_journal
from tests.cli.programs import Sandbox, open_sandbox
from tests.engines.scripted_engines import VRAM_BYTES, ollama_pages, scripted_engine, tgi_pages


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with open_sandbox(tmp_path) as sandbox:
        yield sandbox


def run_session(sandbox: Sandbox, url: str) -> Journal:
    ran = sandbox.run_benchmark(url, "--levels", "1,2", "--requests", "4", "--complete", "--no-gpu", "--json")
    assert ran.code == 0, ran
    assert [(level["ok"], level["errors"]) for level in json.loads(ran.out)["levels"]] == [(4, 0), (4, 0)]
    return read_journal(sandbox.session)


def samples(journal: Journal) -> list[ServerState]:
    return [state for telemetry in journal.telemetry for state in telemetry.servers]


@pytest.mark.parametrize(("path", "owner"), [("", "library"), ("", "someone"), ("/api/chat", "library")])
def test_ollama_session_samples_loaded_models(sandbox: Sandbox, path: str, owner: str) -> None:
    """With both APIs, and if the model list names a user instead of the library."""
    with scripted_engine(ollama_pages(owner), "/api/ps") as server:
        journal = run_session(sandbox, server.url + path)
    assert [endpoint.engine for endpoint in journal.head.session.endpoints] == ["Ollama"]
    assert [(found.engine, found.version, found.context) for found in journal.servers] == [("Ollama", "0.12.0", 8192)]
    found = samples(journal)
    assert len(found) > 1
    assert {(s.engine, s.url, s.vram_bytes) for s in found} == {("Ollama", f"{server.url}/api/ps", VRAM_BYTES)}


def test_tgi_session_samples_metrics(sandbox: Sandbox) -> None:
    with scripted_engine(tgi_pages(), "/metrics") as server:
        journal = run_session(sandbox, server.url)
    assert [endpoint.engine for endpoint in journal.head.session.endpoints] == ["TGI"]
    assert [(found.engine, found.version, found.slots) for found in journal.servers] == [("TGI", "3.3.0", 16)]
    found = samples(journal)
    assert len(found) > 1
    assert {(s.engine, s.running, s.waiting, s.finished) for s in found} == {("TGI", 16.0, 4.0, 30.0)}
