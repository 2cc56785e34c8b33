"""`transformers serve`. Its replies have nothing distinctive, so it is recognised by its process only."""

from __future__ import annotations

from swarmtui.engines.base import Engine


class Transformers(Engine):
    name = "transformers"
    ports = (8000,)
    command = r"transformers\S* serve"
    metrics_path = None
    metrics_limits = "reports no metrics"
