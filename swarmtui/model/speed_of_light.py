"""What the hardware allows for a model: the shape of the model, the figures of a GPU, and the limit by level."""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored
from swarmtui.model.findings import Findings

# What limits a level; `not_known` where no fact tells.
Binding = Literal[
    "slots", "kv_capacity", "prefill", "client", "power", "server_cpu", "launch_overhead", "compute", "bandwidth",
    "not_known",
]  # fmt: skip


class AttentionLayers(Stored, frozen=True, kw_only=True):
    """Layers that keep the same for each token of the context: `elements` numbers, read with `flops` operations.

    Layers with a `window` look at no more tokens than that.
    """

    layers: int
    elements: int
    flops: int
    window: int | None = None

    def tokens(self, context: float) -> float:
        return context if self.window is None else min(context, self.window)


class ModelShape(Stored, frozen=True, kw_only=True):
    """What a decode step reads of a model, in bytes as stored.

    Every step reads `dense_bytes`: attention, norms, routers, shared experts and the output head, but not the embedding
    table, of which it needs a row. `expert_bytes` is one of `experts` in all its layers together, and `experts_used` of
    them answer one token. `draft_bytes` are layers that only speculative decoding uses, `other_bytes` those that no
    decode step reads, such as a vision tower. `state_bytes` is the state of a stream that does not grow with its
    context (linear attention). The KV cache has `kv_bits` per number unless the server is told otherwise; with
    `latent_kv` (MLA) tensor parallelism does not divide it. `compute_bits` is the width of the matrix arithmetic.
    """

    architecture: str
    source: Literal["safetensors", "gguf", "config", "tags"]
    path: str = ""
    quantisation: str = ""
    dense_bytes: float
    dense_parameters: float
    expert_bytes: float = 0.0
    expert_parameters: float = 0.0
    experts: int = 0
    experts_used: int = 0
    embedding_bytes: float = 0.0
    draft_bytes: float = 0.0
    other_bytes: float = 0.0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    attention: tuple[AttentionLayers, ...] = ()
    state_bytes: float = 0.0
    latent_kv: bool = False
    kv_bits: float = 16.0
    compute_bits: Literal[4, 8, 16] = 16

    @property
    def total_bytes(self) -> float:
        """The bytes of all weights, which a server keeps in memory."""
        experts = self.expert_bytes * self.experts
        return self.dense_bytes + experts + self.embedding_bytes + self.draft_bytes + self.other_bytes

    @property
    def active_parameters(self) -> float:
        """The parameters that one token is multiplied with."""
        return self.dense_parameters + self.expert_parameters * self.experts_used


class GpuFigures(Stored, frozen=True, kw_only=True):
    """Figures of one GPU: bytes and operations per second, and where they are from; null is not known.

    The peaks are for dense matrices of numbers with 16, 8 and 4 bits.
    """

    name: str
    bandwidth: float | None = None
    bandwidth_from: str = ""
    peak_16: float | None = None
    peak_8: float | None = None
    peak_4: float | None = None
    peak_from: str = ""
    memory: float | None = None

    def peak(self, bits: int) -> float | None:
        """The highest rate for numbers of this width; narrower ones are computed as wider ones where needed."""
        wider = {4: (self.peak_4, self.peak_8, self.peak_16), 8: (self.peak_8, self.peak_16)}.get(bits, (self.peak_16,))
        return next((peak for peak in wider if peak is not None), None)


class Serving(Stored, frozen=True, kw_only=True):
    """How a model is served. `context` is the mean number of tokens in the context of an agent.

    `tensor_parallel` GPUs share each of `replicas`. `slots` are those of all replicas. Speculative decoding drafts
    `draft_tokens` per step, which then yields `tokens_per_step`. `kv_bits` replaces that of the model, and its
    weights take `weight_factor` times their bytes; `kv_token_bytes` is what the server reports, as with 16 bits.
    """

    context: float = 0.0
    tensor_parallel: int = 1
    replicas: int = 1
    slots: int | None = None
    kv_bits: float | None = None
    kv_token_bytes: float | None = None
    weight_factor: float = 1.0
    draft_tokens: int = 0
    tokens_per_step: float = 1.0


class StepFit(Stored, frozen=True, kw_only=True):
    """How far real steps are from the limit: t = `overhead_s` + limit / `efficiency`.

    `error` is the largest relative distance of a measured step.
    """

    overhead_s: float
    efficiency: float
    levels: int
    error: float


class LevelLimit(Stored, frozen=True, kw_only=True):
    """What the hardware allows with `c` agents, and what of it was reached.

    `batch` is the streams that one step of a replica decodes, `context` their mean length. `bytes_per_step` and
    `flops_per_step` are those of a replica: of a MoE with the expected number of experts. No measurement can exceed
    `limit_tps`, for which all streams use the same experts; `expected_tps` is that with independent ones.
    `fitted_tps` and `step_s` need measured levels; `share` is how much of the limit a step reached.
    """

    c: int
    batch: float
    context: float
    bytes_per_step: float | None
    flops_per_step: float | None
    limit_tps: float | None
    expected_tps: float | None
    fitted_tps: float | None = None
    step_s: float | None = None
    share: float | None = None
    binds: Binding = "not_known"
    because: str = ""


class SpeedOfLight(Stored, frozen=True, kw_only=True):
    """The limits of a session or of a model on a GPU. `missing` says what is not known, and what would tell it.

    `kv_tokens` is how many tokens the KV cache holds, in all replicas: as the server reports, else predicted from the
    memory of the GPUs (`kv_predicted`).
    """

    model: ModelShape | None = None
    gpu: GpuFigures | None = None
    serving: Serving = Serving()
    fit: StepFit | None = None
    kv_tokens: float | None = None
    kv_predicted: bool = False
    levels: tuple[LevelLimit, ...] = ()
    missing: Findings = ()

    def level(self, c: int | None) -> LevelLimit | None:
        return next((level for level in self.levels if level.c == c), None)

    @property
    def expected(self) -> tuple[tuple[int, float], ...]:
        """C and the tok/s to expect at each level where that is known."""
        return tuple((level.c, level.expected_tps) for level in self.levels if level.expected_tps is not None)
