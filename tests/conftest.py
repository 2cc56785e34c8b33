"""Settings for all tests: no example of hypothesis fails because the machine is slow, and long tests start first."""

from __future__ import annotations

import gc
import os
from itertools import islice

import pytest
from hypothesis import HealthCheck, settings

# Read when Textual is imported, which tests of other folders do before those of the app.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

# Collecting tests, and each app of one, makes many objects in cycles: to look for them often takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)

settings.register_profile("any machine", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Files with tests of half a minute; last, they would run on one core while the others are idle.
_LONG = frozenset({"test_tune_auto.py", "test_tune_live.py", "test_tune.py", "test_tune_detached.py", "test_skill.py"})


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported and collected: it lives as long as the process."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first in what each worker of xdist begins with: an equal part of all tests, in their order."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.path.name in _LONG]
    others = iter([item for item in items if item.path.name not in _LONG])
    size = -(-len(items) // workers)
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        first = long[worker::workers]
        ordered += [*first, *islice(others, max(0, size - len(first)))]
    items[:] = [*ordered, *others]
