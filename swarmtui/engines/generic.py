"""Any other OpenAI-compatible server."""

from __future__ import annotations

from swarmtui.engines.base import Engine, ProbeReply, version_in


class Generic(Engine):
    name = "OpenAI-compatible"
    # LM Studio, TabbyAPI, LMDeploy, and replicas next to a server at 8000.
    ports = (1234, 5000, 23333, 8001, 8002, 8003)
    command = "tabbyapi|lmdeploy|koboldcpp|mlc_llm|aphrodite|trtllm-serve"
    probe_paths = ("/version",)

    def recognises(self, reply: ProbeReply) -> bool:
        return bool(version_in(reply.json()))
