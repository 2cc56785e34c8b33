"""Hosts are checked before anything is started."""

from __future__ import annotations

import importlib.metadata

import pytest

from swarmtui.client.request_builder import check_hosts
from swarmtui.model.base import BadInput
from swarmtui.model.hosts import HostsSpec, parse_hosts


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("", None),
        (" local:2 ", HostsSpec("local", nodes=2)),
        ("local:1", HostsSpec("local", nodes=1)),
        ("local:16", HostsSpec("local", nodes=16)),
        ("auto", HostsSpec("cluster", "auto")),
        ("ray://gpu-1.cluster:10001", HostsSpec("cluster", "ray://gpu-1.cluster:10001")),
        ("10.0.0.4:6379", HostsSpec("cluster", "10.0.0.4:6379")),
        ("[fd00::4]:6379", HostsSpec("cluster", "[fd00::4]:6379")),
    ],
)
def test_hosts_are_named_by_a_cluster_or_a_number_of_local_nodes(text: str, spec: HostsSpec | None) -> None:
    assert parse_hosts(text) == spec


@pytest.mark.parametrize("text", ["local", "local:0", "local:17", "host", "http://host:1", "ray://host", "host:x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="local:N"):
        parse_hosts(text)


@pytest.mark.parametrize(("installed", "problem"), [(None, "this needs Ray"), ("2.9.3", "Ray 2.9.3 is too old")])
def test_hosts_without_ray_say_what_to_install(
    installed: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    check_hosts("")
    with pytest.raises(BadInput, match=rf"{problem}; install it with: pip install 'swarmtui\[ray\]'"):
        check_hosts("local:2")
