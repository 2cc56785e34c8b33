"""Import results of other tools for comparison: `vllm bench serve`, GuideLLM and AIPerf JSON.

The files contain no single requests, so figures that the tool did not compute stay null, and a note says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swarmtui.files import read_file
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.sessions.importers.formats import FORMATS
from swarmtui.sessions.importers.reader import read_format

_MAX_BYTES = 512 << 20


def import_result(path: Path) -> Summary:
    documents = _read_documents(path)
    for format in FORMATS:
        if (summary := read_format(format, documents, path)) is not None:
            return summary
    raise BadInput("is not a result of vllm bench serve, GuideLLM or AIPerf", source=str(path))


def _read_documents(path: Path) -> list[Any]:
    """Read one JSON document, or one per line. The tools use Python's json, which writes NaN and Infinity."""
    try:
        text = read_file(path, _MAX_BYTES).decode()
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
