"""The version of swarmtui: the only place that has it."""

__version__ = "0.1.0"
