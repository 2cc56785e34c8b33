"""Gateways, which forward requests to servers elsewhere: their own flags say nothing about those."""

from __future__ import annotations

from swarmtui.engines.base import Engine, ProbeReply


class LiteLlm(Engine):
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
