"""API dialects: the module of each is named as in `swarmtui.model.endpoint.PATHS` and defines `DIALECT`."""

from __future__ import annotations

from importlib import import_module

from swarmtui.loadgen.dialects.base import ApiDialect
from swarmtui.model.endpoint import PATHS, Dialect


def load_dialect(name: Dialect) -> ApiDialect:
    dialect: ApiDialect = import_module(f"{__name__}.{name}").DIALECT
    return dialect


def names_with_tools() -> tuple[Dialect, ...]:
    """Return the APIs that can send tool definitions."""
    return tuple(name for name in PATHS if load_dialect(name).tool_fields is not None)
