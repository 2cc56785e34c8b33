"""Settings for all tests: no example of hypothesis fails because the machine is slow."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
