"""Results of other tools, read for comparison: `vllm bench serve`, GuideLLM and AIPerf JSON.

They hold no requests of ours, so nothing can be derived again; what they lack stays null and is said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swarmtui.model.schema import BadInput
from swarmtui.model.session import Summary
from swarmtui.sessions.importers.aiperf import metrics_of, read_aiperf
from swarmtui.sessions.importers.guidellm import is_guidellm, read_guidellm
from swarmtui.sessions.importers.shape import build_summary
from swarmtui.sessions.importers.vllm import is_vllm, read_vllm

_LARGEST = 512 << 20


def read_foreign(path: Path) -> Summary:
    """One summary for each file."""
    results = _results(path)
    if results and all(map(is_vllm, results)):
        return build_summary(read_vllm(results), path)
    if len(results) == 1:
        (data,) = results
        if is_guidellm(data):
            return build_summary(read_guidellm(data), path)
        metrics = metrics_of(data)
        if metrics is not None:
            return build_summary(read_aiperf(data, metrics), path)
    raise BadInput("is no result of vllm bench serve, GuideLLM or AIPerf", source=str(path))


def _results(path: Path) -> list[Any]:
    """One document, or one a line. The tools write with Python's json, which knows NaN and Infinity."""
    try:
        if path.stat().st_size > _LARGEST:
            raise BadInput("is larger than any result of the tools that are known", source=str(path))
        text = path.read_bytes().decode()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", source=str(path)) from None
    except UnicodeDecodeError as error:
        raise BadInput(f"not valid JSON: {error}", source=str(path)) from None
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError) as error:
        try:
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            lines = []
        if not lines:
            raise BadInput(f"not valid JSON: {error}", source=str(path)) from None
        return lines
