"""Sort the tensors of a model: what every decode step reads, what single experts are, and what no step reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from swarmtui.telemetry.model_files.safetensors import Tensor
from swarmtui.telemetry.model_files.settings import ModelSettings

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
        is_draft = bool(settings.draft_layers) and _layer(name) >= settings.layers
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


def _layer(name: str) -> int:
    found = _LAYER.search(name)
    return int(found.group(1)) if found else -1


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
