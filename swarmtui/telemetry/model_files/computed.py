"""Compute the bytes of a model from config.json alone, for shapes without files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarmtui.telemetry.model_files.settings import ModelSettings, Reader, text_part
from swarmtui.telemetry.model_files.weights import Part, Sums, Weights

_PLAIN_BITS = 16


def computed_weights(config: Mapping[str, Any], settings: ModelSettings) -> Weights:
    """Return the weights that a decoder of this shape has; norms and biases are left out."""
    text = text_part(config)
    hidden, layers = settings.hidden, settings.layers
    linear_layers = layers - sum(group.layers for group in settings.attention)
    moe_layers = _moe_layers(text, settings)
    inner = text.count("intermediate_size", "ffn_dim", "n_inner") or 4 * hidden
    expert_inner = text.count("moe_intermediate_size", "expert_intermediate_size") or inner
    shared_inner = text.count("shared_expert_intermediate_size") or text.count("n_shared_experts") * expert_inner
    table = settings.vocabulary * hidden
    counts: dict[str, float] = {
        "self_attn": sum(group.layers for group in settings.attention) * _attention(text, settings),
        "linear_attn": linear_layers * _linear_attention(text, hidden),
        "mlp": (layers - moe_layers) * 3 * hidden * inner,
        "shared_expert": moe_layers * 3 * hidden * shared_inner,
        "experts": moe_layers * settings.experts * 3 * hidden * expert_inner,
    }
    packed = settings.quantisation
    wide = (packed.bits + packed.overhead) / 8
    parts: dict[Part, Sums] = {}
    dense_bytes = dense = 0.0
    for name, count in counts.items():
        size = count * (_PLAIN_BITS / 8 if any(name in one for one in packed.kept) else wide)
        if name == "experts":
            parts["expert"] = Sums(size, count)
        else:
            dense_bytes, dense = dense_bytes + size, dense + count
    router = moe_layers * hidden * settings.experts
    parts["dense"] = Sums(dense_bytes + router * _PLAIN_BITS / 8, dense + router)
    parts["embedding"] = Sums(table * _PLAIN_BITS / 8, 0.0)
    if not settings.tied:
        parts["head"] = Sums(table * (wide if packed.head else _PLAIN_BITS / 8), table)
    return Weights(parts, {})


def _moe_layers(text: Reader, settings: ModelSettings) -> int:
    if not settings.experts:
        return 0
    first = text.count("first_k_dense_replace", "moe_layer_start_index")
    step = text.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period") or 1
    return max(0, (settings.layers - first) // step - len(text.items("mlp_only_layers")))


def _attention(text: Reader, settings: ModelSettings) -> float:
    hidden, heads = settings.hidden, settings.heads
    rank, rope = text.count("kv_lora_rank"), text.count("qk_rope_head_dim")
    if rank:
        nope, value, query = (text.count(name) for name in ("qk_nope_head_dim", "v_head_dim", "q_lora_rank"))
        per_query = heads * (nope + rope)
        queries = query * (hidden + per_query) if query else hidden * per_query
        return queries + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    head_dim = text.count("head_dim") or hidden // max(1, heads)
    gate = 2 if text.get("attn_output_gate") is True else 1
    return hidden * head_dim * (heads * gate + 2 * settings.kv_heads + heads)


def _linear_attention(text: Reader, hidden: int) -> float:
    keys = text.count("linear_num_key_heads") * text.count("linear_key_head_dim")
    values = text.count("linear_num_value_heads") * text.count("linear_value_head_dim")
    return hidden * (2 * keys + 2 * values + 2 * text.count("linear_num_value_heads")) + values * hidden
