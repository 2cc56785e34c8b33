"""Servers that tell little of themselves: gateways, `transformers serve`, and any other OpenAI-compatible server."""

from __future__ import annotations

from swarmtui.engines.base import Engine, ProbeReply, version_in


class LiteLlm(Engine):
    """A gateway, which forwards requests to servers elsewhere: its own flags say nothing about those."""

    name = "LiteLLM gateway"
    ports = (4000,)
    command = "litellm"
    gateway = True
    metrics_path = None
    # It answers this path without a key; the spelling and the text are its own.
    probe_paths = ("/health/liveliness",)

    def recognises(self, reply: ProbeReply) -> bool:
        return reply.status == 200 and "I'm alive!" in reply.text


class ReverseProxy(Engine):
    """Recognised by the Server header, if nothing behind it is recognised by its replies."""

    name = "gateway"
    gateway = True
    metrics_path = None
    servers = ("nginx", "openresty", "envoy", "istio-envoy", "kong", "caddy", "apisix", "traefik")

    def serves(self, server_header: str) -> bool:
        return server_header.lower().partition("/")[0].strip() in self.servers


class Transformers(Engine):
    """Its replies have nothing distinctive, so it is recognised by its process only."""

    name = "transformers"
    ports = (8000,)
    command = r"transformers\S* serve"
    metrics_path = None
    metrics_limits = "reports no metrics"


class Generic(Engine):
    name = "OpenAI-compatible"
    # LM Studio, TabbyAPI, LMDeploy, and replicas next to a server at 8000.
    ports = (1234, 5000, 23333, 8001, 8002, 8003)
    command = "tabbyapi|lmdeploy|koboldcpp|mlc_llm|aphrodite|trtllm-serve"
    probe_paths = ("/version",)

    def recognises(self, reply: ProbeReply) -> bool:
        return bool(version_in(reply.json()))
