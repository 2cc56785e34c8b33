"""What `--metrics-port` serves: readable for Prometheus, and all that the dashboard in .github asks for."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from swarmtui.model.client_protocol import TTFT_BOUNDS, Frame, Totals
from swarmtui.model.findings import SearchState
from swarmtui.model.telemetry import Gpu, QualityLine, ServerState, Telemetry
from swarmtui.report.metrics import METRICS, render_live
from swarmtui.state.session_state import SessionState
from tests.analysis.level_builders import level, session
from tests.cli.programs import ROOT

HOSTILE = 'a "quoted" \\ name\nwith a second line\x1b[31m'
DASHBOARD = ROOT / ".github" / "grafana-dashboard.json"


def parse(text: bytes) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [
        sample.value for family in families.values() for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]  # fmt: skip
    return float(found)


def full_frame(**fields: Any) -> Frame:
    """A frame in which everything is known."""
    gpu = Gpu(
        uuid="GPU-1", index=0, name=HOSTILE, memory_used=8 << 30, memory_total=24 << 30, power_w=200.0, energy_j=1e6,
        utilisation=0.5, temperature_c=60.0,
    )  # fmt: skip
    server = ServerState(engine="vLLM", running=4, waiting=2, kv_use=0.25)
    counts = [0] * (len(TTFT_BOUNDS) + 1)
    counts[TTFT_BOUNDS.index(0.2)], counts[-1] = 3, 1
    known: dict[str, Any] = {
        "status": "running", "c": 4, "rate": 2.0, "in_flight": 4, "waiting": 1, "out_tps": 160.0,
        "per_stream_tps": 40.0, "lag_ms": 0.5, "worker_cpu": 0.1,
        "totals": Totals(
            requests=9, errors={"reset": 2, HOSTILE: 1}, tokens_in=900, tokens_out=90, ttft_sum_s=200.5,
            ttft_counts=tuple(counts),
        ),
        "search": SearchState(goal="capacity", low=6, at_least=4, high=8),
        "levels": (level(1, tps=50.0, ttft=0.1, tpot=0.02, stream=50.0), level(4, tps=160.0, ttft=0.2)),
        "telemetry": Telemetry(t_ns=0, gpus=(gpu,), servers=(server,)),
        "quality": (QualityLine(name="client CPU", state="doubtful", value="1", sentence="x", code="client_cpu"),),
    }  # fmt: skip
    return msgspec.structs.replace(SessionState(0).frame(0, rows=False), **(known | fields))


def test_prometheus_reads_every_metric() -> None:
    families = parse(render_live(session(), full_frame()))
    served = {sample.name for family in families.values() for sample in family.samples}
    assert {f"swarmtui_{metric.name}" for metric in METRICS} <= served
    # The parser takes the name of a counter without its suffix.
    kinds = {f"swarmtui_{metric.name.removesuffix('_total')}": metric.kind for metric in METRICS}
    assert kinds.items() <= {name: family.type for name, family in families.items()}.items()
    assert all(family.documentation for family in families.values())
    assert value(families, "swarmtui_concurrency") == 4
    assert value(families, "swarmtui_request_errors_total", error="reset") == 2
    assert value(families, "swarmtui_quality", code="client_cpu") == 2
    assert value(families, "swarmtui_capacity_agents", bound="high") == 8
    assert value(families, "swarmtui_level_steady_tokens_per_second", c="4") == 160.0
    assert value(families, "swarmtui_client_lag_seconds") == 0.0005
    info = families["swarmtui_session_info"].samples[0].labels
    assert info["model"] == "qwen3" and info["simulated"] == "false"


def test_histogram_is_cumulative() -> None:
    families = parse(render_live(session(), full_frame()))
    assert families["swarmtui_ttft_seconds"].type == "histogram"
    assert value(families, "swarmtui_ttft_seconds_bucket", le="0.15") == 0
    assert value(families, "swarmtui_ttft_seconds_bucket", le="0.2") == 3
    assert value(families, "swarmtui_ttft_seconds_bucket", le="120.0") == 3
    assert value(families, "swarmtui_ttft_seconds_bucket", le="+Inf") == 4
    assert value(families, "swarmtui_ttft_seconds_count") == 4
    assert value(families, "swarmtui_ttft_seconds_sum") == 200.5


def test_names_from_outside_stay_in_their_label() -> None:
    families = parse(render_live(session(), full_frame()))
    (gpu,) = families["swarmtui_gpu_power_watts"].samples
    assert gpu.labels["name"] == 'a "quoted" \\ name with a second line'
    assert "\x1b" not in render_live(session(), full_frame()).decode()


def test_what_is_not_known_has_no_sample() -> None:
    before = parse(render_live(None, None))
    assert list(before) == ["swarmtui_build_info"]
    empty = parse(render_live(session(), SessionState(0).frame(0, rows=False)))
    assert "swarmtui_output_tokens_per_second" not in empty and "swarmtui_gpu_power_watts" not in empty
    assert value(empty, "swarmtui_status", status="starting") == 1


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]] + [
        variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable
    ]


@pytest.mark.parametrize("expression", expressions())
def test_dashboard_asks_for_what_is_served(expression: str) -> None:
    families = parse(render_live(session(), full_frame()))
    served = {sample.name for family in families.values() for sample in family.samples}
    asked = set(re.findall(r"\bswarmtui_\w+", expression))
    assert asked and asked <= served
    labels = {label for family in families.values() for sample in family.samples for label in sample.labels}
    grouped = {name.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for name in group.split(",")}
    assert grouped <= labels


def test_legends_of_the_dashboard_are_labels_of_their_metric() -> None:
    families = parse(render_live(session(), full_frame()))
    labels = {sample.name: set(sample.labels) for family in families.values() for sample in family.samples}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            (metric,) = set(re.findall(r"\bswarmtui_\w+", target["expr"]))
            assert names <= labels[metric], (panel["title"], target["expr"])
