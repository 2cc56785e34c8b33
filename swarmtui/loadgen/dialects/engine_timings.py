"""Read what servers add to the last chunk about a request: vLLM's `metrics` and SGLang's `meta_info`.

Both are optional and change between versions: what cannot be read counts as not reported, and fails no request.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from swarmtui.loadgen.dialects.base import Chunk, Count, to_int
from swarmtui.loadgen.response import Response
from swarmtui.model.base import DECODE_ERRORS
from swarmtui.model.record import EngineTimings

_ChunkT = TypeVar("_ChunkT", bound=Chunk)


class _PrefixCache(Chunk):
    num_computed_tokens: Count | None = None
    num_local_cached_tokens: Count | None = None
    num_external_cached_tokens: Count | None = None
    num_block_evictions: Count | None = None


class _Speculation(Chunk):
    num_draft_tokens: Count | None = None
    num_accepted_draft_tokens: Count | None = None


class _Metrics(Chunk):
    """vLLM, with --enable-per-request-metrics; the parts are of later versions, or need another flag."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None
    mean_itl_ms: float | None = None
    prefix_cache: _PrefixCache | None = None
    speculative_decoding: _Speculation | None = None


class _MetaInfo(Chunk):
    """SGLang; the times are in seconds."""

    queue_time: float | None = None
    cached_tokens: Count | None = None
    spec_draft_token_num: Count | None = None
    spec_accept_token_num: Count | None = None


_metrics_decoder = msgspec.json.Decoder(_Metrics | None)
_meta_decoder = msgspec.json.Decoder(_MetaInfo | None)


def read_vllm_metrics(response: Response, raw: msgspec.Raw) -> None:
    found = _decode(_metrics_decoder, raw)
    if found is None:
        return
    cache, drafts = found.prefix_cache or _PrefixCache(), found.speculative_decoding or _Speculation()
    response.engine = EngineTimings(
        queue_s=_seconds(found.queue_time_ms),
        computed_tokens=to_int(cache.num_computed_tokens),
        local_cached_tokens=to_int(cache.num_local_cached_tokens),
        external_cached_tokens=to_int(cache.num_external_cached_tokens),
        evicted_blocks=to_int(cache.num_block_evictions),
        draft_tokens=to_int(drafts.num_draft_tokens),
        accepted_tokens=to_int(drafts.num_accepted_draft_tokens),
    )
    # It counts from when the request was scheduled, and so without the time in the queue.
    response.engine_prefill_s = _seconds(found.time_to_first_token_ms)
    if found.mean_itl_ms:
        response.engine_decode_tps = 1e3 / found.mean_itl_ms


def read_sglang_meta(response: Response, raw: msgspec.Raw) -> None:
    found = _decode(_meta_decoder, raw)
    if found is None:
        return
    response.engine = EngineTimings(
        queue_s=found.queue_time,
        local_cached_tokens=to_int(found.cached_tokens),
        draft_tokens=to_int(found.spec_draft_token_num),
        accepted_tokens=to_int(found.spec_accept_token_num),
    )
    if response.cached_tokens is None:
        response.cached_tokens = to_int(found.cached_tokens)


def _decode(decoder: msgspec.json.Decoder[_ChunkT | None], raw: msgspec.Raw) -> _ChunkT | None:
    try:
        return decoder.decode(raw)
    except DECODE_ERRORS:
        return None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None or milliseconds < 0 else milliseconds / 1e3
