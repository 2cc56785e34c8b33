"""Sort the tensors of a model: what every decode step reads, what single experts are, and what no step reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from swarmtui.telemetry.model_files.safetensors import Tensor
from swarmtui.telemetry.model_files.settings import ModelSettings, Reader, text_part

Part = Literal["dense", "expert", "embedding", "head", "draft", "other"]

# Names are compared without digits, so that one look-up serves all layers and experts.
_DIGITS = b"0123456789"
_OTHER = re.compile(
    r"(^|\.)(visual|vision\w*|audio\w*|image\w*|multi_modal\w*|mm_\w+|patch_\w+|embed_vision|embed_audio|connector"
    r"|projector|aligner|embed_tokens_per_layer|per_layer_token_embd|wpe|position_embd|embed_positions)\.|^(v|a|mm)\."
)
_DRAFT = re.compile(r"(^|\.)(mtp\w*|nextn\w*|eagle\w*|medusa\w*|draft\w*|speculator\w*)\.")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings|token_embd|embed_in)\.")
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out)\.|^output\.")
_EXPERT = re.compile(r"(^|\.)experts\.|_exps\.|\.block_sparse_moe\.(in|out)put_linear\.")
# Scales, zero points and the like, which are no weights of their own.
_AUXILIARY = re.compile(
    r"(scales?|_scale_inv|qzeros|g_idx|absmax|quant_map|quant_state.*|nested_\w+|zero_point|weight_shape|_scale_"
    r"|\.biases|input_global_scale|weight_global_scale|SCB|inv_freq|weight_format)$"
)
_PACKED_WORDS = ("I32", "U32")
_PLAIN_BITS = 16
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h)\.(\d{1,6})\.")


class Sums(NamedTuple):
    bytes: float = 0.0
    parameters: float = 0.0

    def plus(self, size: float, parameters: float) -> Sums:
        return Sums(self.bytes + size, self.parameters + parameters)


class Weights(NamedTuple):
    """Bytes and parameters by part, and the bytes of each type of numbers."""

    parts: dict[Part, Sums]
    by_type: dict[str, float]

    def sums(self, *parts: Part) -> Sums:
        found = [self.parts.get(part, Sums()) for part in parts]
        return Sums(sum(one.bytes for one in found), sum(one.parameters for one in found))


def sort_tensors(tensors: Iterable[Tensor], settings: ModelSettings) -> Weights:
    """Sum up all tensors; layers after the last one of the model are drafts (MTP), with the experts of one token."""
    # Sums of bytes and elements of tensors whose names differ only in numbers, and of those of draft layers.
    groups: dict[tuple[bytes, str, bool], list[int]] = {}
    for name, kind, elements, size in tensors:
        layer = _LAYER.search(name)
        is_draft = bool(settings.draft_layers and layer and int(layer.group(1)) >= settings.layers)
        key = (name.encode().translate(None, _DIGITS), kind, is_draft)
        sums = groups.get(key)
        if sums is None:
            groups[key] = [size, elements]
        else:
            sums[0] += size
            sums[1] += elements
    used = settings.experts_used / settings.experts if settings.experts else 1.0
    parts: dict[Part, Sums] = {}
    by_type: dict[str, float] = {}
    for (encoded, kind, is_draft), (size, elements) in groups.items():
        name = encoded.decode()
        part = part_of(name)
        part = "draft" if is_draft and part in ("dense", "expert") else part
        share = used if part == "draft" and _EXPERT.search(name) else 1.0
        weights = elements * _weights_per_element(name, kind, settings.quantisation.bits)
        parts[part] = parts.get(part, Sums()).plus(share * size, share * weights)
        if share < 1.0:
            parts["other"] = parts.get("other", Sums()).plus((1.0 - share) * size, 0.0)
        by_type[kind] = by_type.get(kind, 0.0) + size
    return Weights(parts, by_type)


def part_of(name: str) -> Part:
    """Return what a tensor belongs to, by its name without digits."""
    if _OTHER.search(name):
        return "other"
    if _DRAFT.search(name):
        return "draft"
    if _EXPERT.search(name):
        return "expert"
    if _EMBEDDING.search(name):
        return "embedding"
    return "head" if _HEAD.search(name) else "dense"


def _weights_per_element(name: str, kind: str, bits: int) -> float:
    """Return how many weights one stored number holds: 0 for scales, several for packed ones."""
    if _AUXILIARY.search(name):
        return 0.0
    if kind in _PACKED_WORDS:
        return 32 / bits if bits < 16 else 1.0
    return 2.0 if kind == "U8" else 1.0


def computed_weights(config: Mapping[str, Any], settings: ModelSettings) -> Weights:
    """Compute the weights of a decoder from config.json alone, without files; norms and biases are left out."""
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
