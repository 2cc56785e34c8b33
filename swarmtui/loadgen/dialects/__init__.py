"""API dialects: the module of each is named as in `swarmtui.model.endpoint.PATHS` and defines `DIALECT`."""

from __future__ import annotations

from importlib import import_module

from swarmtui.loadgen.dialects.base import ApiDialect
from swarmtui.model.endpoint import Dialect


def load_dialect(name: Dialect) -> ApiDialect:
    dialect: ApiDialect = import_module(f"{__name__}.{name}").DIALECT
    return dialect
