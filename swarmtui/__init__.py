"""swarmtui: live benchmarking of LLM endpoints under the load of an agent swarm.

From Python, without a screen (PYTHON.md beside this file has more):

    import swarmtui

    result = swarmtui.run("http://127.0.0.1:8000", levels=[1, 2, 4], runs=4)
    for level in result.levels:
        print(level.c, level.out_tps_steady, level.ttft_s.p50)
    print(result.answer.headline)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from swarmtui.version import __version__

if TYPE_CHECKING:
    from swarmtui.analysis.compare.sessions import Pair
    from swarmtui.api import RunFailed, capacity, compare, load, quick, run
    from swarmtui.model.base import BadInput
    from swarmtui.model.client_protocol import Frame
    from swarmtui.model.session import Level, Summary

__all__ = (
    "BadInput", "Frame", "Level", "Pair", "RunFailed", "Summary", "__version__",
    "capacity", "compare", "load", "quick", "run",
)  # fmt: skip

# Imported when they are used: `import swarmtui` and every process of ours stay fast.
_MODULES = {
    "BadInput": "swarmtui.model.base",
    "Frame": "swarmtui.model.client_protocol",
    "Level": "swarmtui.model.session",
    "Pair": "swarmtui.analysis.compare.sessions",
    "Summary": "swarmtui.model.session",
} | dict.fromkeys(("RunFailed", "capacity", "compare", "load", "quick", "run"), "swarmtui.api")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'swarmtui' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
