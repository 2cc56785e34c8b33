"""swarmtui: live benchmarking of LLM endpoints under the load of an agent swarm."""

__version__ = "0.1.0"
