"""Run requests are built from the user's choices, or all fields with errors are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swarmtui.client.choices import RunChoices
from swarmtui.client.request_builder import build_request
from swarmtui.model.base import BadInput
from swarmtui.model.config import EndpointConfig
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from tests.sessions.session_builders import head, write_session

SIM = EndpointConfig(url="sim:moe-tp1")


def request(endpoint: EndpointConfig = SIM, **choices: Any) -> RunRequest:
    root = Path(choices.pop("session_root", "/nowhere"))
    return build_request(RunChoices(endpoints=(endpoint.url,), **choices), (endpoint,), root)


def errors(endpoint: EndpointConfig = SIM, **choices: Any) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        request(endpoint, **choices)
    return {error.key: error.problem for error in caught.value.each}


def test_all_wrong_fields_are_named_at_once() -> None:
    found = errors(
        EndpointConfig(url="ftp://here"), workload="codding", headers=("alone",), tags=("=",), on_restart="wiat"
    )
    assert set(found) == {"endpoints", "workload", "headers", "tags", "on_restart"}
    assert "http:// or https://" in found["endpoints"] and "did you mean coding?" in found["workload"]


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"levels": "0"}, "levels"),
        ({"api": "chatt"}, "api"),
        ({"canaries": "90%"}, "canaries"),
        ({"canaries": "2%", "plan": "manual"}, "canaries"),
        ({"runs": "1001"}, "runs"),
        ({"requests": "many"}, "requests"),
        ({"requests": "4", "duration": "1s"}, "duration"),
        ({"warmup": "some"}, "warmup"),
        ({"plan": "cliff", "levels": "1,2"}, "plan"),
        ({"plan": "open"}, "rate"),
        ({"plan": "manual", "workload": "orchestrator-dag"}, "workload"),
        ({"burst": 2.0}, "burst"),
        ({"slo": "ttft"}, "slo"),
        ({"timeout": "soon"}, "timeout"),
        ({"idle_timeout": "soon"}, "idle_timeout"),
        ({"metrics_urls": ("box:9000",)}, "metrics_urls"),
        ({"baseline": "last"}, "baseline"),
    ],
)
def test_error_names_its_field(choices: dict[str, Any], field: str) -> None:
    assert list(errors(**choices)) == [field]


def test_error_in_a_simulator_preset_is_one_of_the_endpoint() -> None:
    found = errors(EndpointConfig(url="sim:moe-tp1?sped=9"))
    assert list(found) == ["endpoints"] and "did you mean speed?" in found["endpoints"]


def test_config_of_the_endpoint_counts_where_nothing_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "secret")
    box = EndpointConfig(
        url="http://box:8000", model="m", api="messages", api_key_env="KEY", headers={"X-Team": "blue"}
    )
    built = request(box, headers=("X-Run=1",), model=" ")
    assert (built.model, built.secrets.api_key) == ("m", "secret")
    assert built.secrets.headers == {"X-Team": "blue", "X-Run": "1"}
    assert request(box, model="other").model == "other"
    assert (built.api, request(box, api="auto").api, request(api=" ").api) == ("messages", "auto", None)


def test_missing_key_is_blamed_on_what_named_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY", raising=False)
    assert list(errors(api_key_env="KEY")) == ["api_key_env"]
    assert list(errors(EndpointConfig(url="http://box:8000", api_key_env="KEY"))) == ["endpoints"]


def test_ca_file_without_certificates_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello\n")
    assert "no certificate" in errors(ca_file=str(tmp_path / "ca.pem"))["ca_file"]
    assert "cannot be read" in errors(ca_file=str(tmp_path / "missing.pem"))["ca_file"]


def test_one_server_has_one_address_in_sessions(tmp_path: Path) -> None:
    for given in ("127.0.0.1:8000", " http://127.0.0.1:8000"):
        request = build_request(RunChoices(endpoints=(given,)), [EndpointConfig(url=given)], tmp_path)
        assert request.endpoints == ("http://127.0.0.1:8000",)
    assert build_request(RunChoices(), [EndpointConfig(url="sim:moe-tp1")], tmp_path).endpoints == ("sim:moe-tp1",)


def test_probe_is_one_timed_request_in_a_series_of_its_endpoint() -> None:
    built = request(plan="probe", runs="3", levels="8", requests="100")
    assert built.plan.load == Closed(levels=(1,), runs=3, requests="1", warmup=1, preroll=False)
    assert built.series is not None and built.series.kind == "probe" and SIM.url in built.series.name


def test_baseline_gives_the_same_requests_with_other_nonces(tmp_path: Path) -> None:
    """Prompts that the baseline sent may be in the server's prefix cache."""
    write_session(tmp_path / "20261115-014455-3f9a", [head("20261115-014455-3f9a", plan=Plan(seed=77))])
    made = request(session_root=tmp_path, baseline="20261115-014455-3f9a")
    assert (made.previous, made.plan.seed) == ("20261115-014455-3f9a", 77)
    assert made.salt
    assert request(session_root=tmp_path, baseline="20261115-014455-3f9a", seed=5).plan.seed == 5
    assert not request(session_root=tmp_path).salt
