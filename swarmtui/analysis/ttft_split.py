"""Where the time to the first token goes: waiting for a seat, reading the prompt, and the rest."""

from __future__ import annotations

from swarmtui.analysis.server_change import mean_between
from swarmtui.model.telemetry import ServerState, TtftSplit

_CLOCKS_APART = 0.05
SAME_LENGTH = 0.10


def split(ttft_s: float | None, n: int, server: ServerState | None) -> TtftSplit | None:
    """`ttft_s` is the client's mean of `n` requests, `server` what the servers' figures rose by in the same time.

    None when the server does not tell, or tells of more time than the client saw: then it was of other requests.
    """
    if ttft_s is None or server is None:
        return None
    queue_s, prefill_s = mean_between(None, server.queue), _prefill_s(server, n)
    if queue_s is None and prefill_s is None:
        return None
    rest_s = ttft_s - (queue_s or 0.0) - (prefill_s or 0.0)
    if rest_s < -_CLOCKS_APART * ttft_s:
        return None
    return TtftSplit(ttft_s=ttft_s, queue_s=queue_s, prefill_s=prefill_s, rest_s=max(0.0, rest_s))


def estimate(
    ttft_s: float | None, prompt_tokens: float | None, alone_s: float | None, alone_prompt_tokens: float | None
) -> TtftSplit | None:
    """By the time that one stream alone had to wait: what is more than that is the queue.

    None when the prompts were not of the same length (within 10 %), or when nobody counted them.
    """
    if ttft_s is None or alone_s is None or not prompt_tokens or not alone_prompt_tokens:
        return None
    if abs(prompt_tokens / alone_prompt_tokens - 1.0) > SAME_LENGTH:
        return None
    prefill_s = min(alone_s, ttft_s)
    return TtftSplit(ttft_s=ttft_s, queue_s=ttft_s - prefill_s, prefill_s=prefill_s, estimated=True)


def _prefill_s(server: ServerState, n: int) -> float | None:
    """Its own histogram; else the server's first token less its queue; else a counter of seconds over our requests."""
    known = mean_between(None, server.prefill)
    if known is not None:
        return known
    first_s, queue_s = mean_between(None, server.ttft), mean_between(None, server.queue)
    if first_s is not None and queue_s is not None:
        return max(0.0, first_s - queue_s)
    return server.prefill_seconds / n if server.prefill_seconds is not None and n else None
