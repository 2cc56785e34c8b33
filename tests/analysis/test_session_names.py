"""Sessions are named by what distinguishes them."""

from __future__ import annotations

import msgspec

from swarmtui.analysis.compare.differences import session_names, varying_flags
from swarmtui.model.session import Summary
from swarmtui.model.telemetry import DiscoveredServer
from tests.analysis.level_builders import level, summary


def session(id: str, label: str = "", flags: str = "") -> Summary:
    made = summary((level(1),), id)
    return msgspec.structs.replace(made, session=msgspec.structs.replace(made.session, label=label, server_flags=flags))


def test_name_is_the_label_then_flags_then_the_id() -> None:
    flags = ("--slots 2", "--slots 4")
    assert session_names([session("a", "one"), session("b", "two")]) == ["one", "two"]
    assert session_names([session("a", "", flags[0]), session("b", "", flags[1])]) == list(flags)
    assert session_names([session("a", "x", flags[0]), session("b", "x", flags[1])]) == [f"x · {f}" for f in flags]
    assert session_names([session("a", "x"), session("b", "x")]) == ["x (a)", "x (b)"]
    assert session_names([session("a"), session("b")]) == ["a", "b"]


def test_without_known_flags_the_name_is_what_the_server_reports() -> None:
    named = [
        msgspec.structs.replace(session(id), servers=(DiscoveredServer(url="http://127.0.0.1:8000", slots=slots),))
        for id, slots in (("a", 2), ("b", 4))
    ]
    assert session_names(named) == ["total slots 2", "total slots 4"]


def test_flags_changed_last_come_first_and_addresses_are_left_out() -> None:
    newest_first = [
        {"parallel": "4", "flash-attn": "true", "ctx": "8192", "port": "3"},
        {"parallel": "4", "ctx": "8192", "port": "2"},
        None,
        {"parallel": "2", "ctx": "8192", "port": "1"},
    ]
    assert varying_flags(newest_first) == ["--flash-attn --parallel 4", "--parallel 4", "", "--parallel 2"]
    assert varying_flags([{"fast": "true"}, {}]) == ["--fast", "no --fast"]
    assert varying_flags([{"same": "1"}, {"same": "1"}]) == ["", ""]
    embedded, command = {"slots": "4", "watch-stdin": "true"}, {"slots": "4", "port": "8000"}
    assert varying_flags([embedded, command]) == ["", ""]
