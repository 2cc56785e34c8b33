"""The self-test measures the worker of this host."""

from __future__ import annotations

from swarmtui.processes.selftest import measure_client_speed


def test_self_test_reads_real_streams() -> None:
    found = measure_client_speed()
    assert found.token_us > 0.5, "reading a token takes longer"
    assert found.streams > 0 and 0.0 <= found.coalesced_chunks <= 1.0
