"""Compare the limit of a decode step with a real one: random weights of a dense model and of a MoE, on one NVIDIA GPU.

    python -m tests.bench.speed_of_light [--models dense,moe] [--context 2000] [--batches 1,2,4,8,16,32,64] [--json F]

Needs PyTorch with CUDA, msgspec and nvidia-ml-py, 64 GB of GPU memory and no network; takes about two minutes. Each
model is written as safetensors with real headers and no content (sparse files), read as `swarmtui limits` reads it, and
decoded with the same shapes in a CUDA graph. Exits with code 1 if the bytes of the headers are not those of the tensors
(0.5 %), if a step is faster than the hard limit, or if the fit of batches 1 and 8 is off at 16, 32 or 64 by more than
15 % (dense) or 20 % (MoE).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from swarmtui.analysis.speed_of_light.fit import fit_steps, predicted_step
from swarmtui.analysis.speed_of_light.gpus import gpu_figures, gpu_named
from swarmtui.analysis.speed_of_light.step import decode_step, experts_read
from swarmtui.model.speed_of_light import GpuFigures, ModelShape, Serving
from swarmtui.telemetry.gpu.nvml import NvmlReader
from swarmtui.telemetry.model_files.reader import read_model

FITTED, PREDICTED = (1, 8), (16, 32, 64)
MAX_BYTES_ERROR = 0.005
SHARD_BYTES = 4 << 30
REPLAYS, ROUNDS = 20, 5


class Sizes(NamedTuple):
    """The shape of a decoder; without experts, `inner` is that of the dense MLP."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int
    experts: int = 0
    used: int = 0

    def config(self) -> dict[str, Any]:
        moe = {"num_experts": self.experts, "num_experts_per_tok": self.used, "moe_intermediate_size": self.inner}
        return {
            "model_type": "qwen3_moe" if self.experts else "llama",
            "num_hidden_layers": self.layers, "hidden_size": self.hidden, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "intermediate_size": self.inner,
            "vocab_size": self.vocabulary, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        } | (moe if self.experts else {})  # fmt: skip


MODELS = {
    "dense": (Sizes(32, 4096, 32, 8, 128, 14336, 128256), 0.15),
    "moe": (Sizes(24, 2048, 16, 4, 128, 1408, 102400, experts=64, used=6), 0.20),
}


class Decoder:
    """A decoder with random weights, which decodes one token of each stream against a full KV cache."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.weights = sizes, dict[str, Any]()
        s, queries, keys = sizes, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self._add("model.embed_tokens.weight", s.vocabulary, s.hidden)
        self._add("lm_head.weight", s.vocabulary, s.hidden)
        self._add("model.norm.weight", s.hidden)
        for i in range(s.layers):
            at = f"model.layers.{i}"
            for name, rows in (("q", queries), ("k", keys), ("v", keys)):
                self._add(f"{at}.self_attn.{name}_proj.weight", rows, s.hidden)
            self._add(f"{at}.self_attn.o_proj.weight", s.hidden, queries)
            self._add(f"{at}.input_layernorm.weight", s.hidden)
            self._add(f"{at}.post_attention_layernorm.weight", s.hidden)
            if s.experts:
                self._add(f"{at}.mlp.gate.weight", s.experts, s.hidden)
                self._add(f"{at}.mlp.experts.gate_up_proj", s.experts, 2 * s.inner, s.hidden)
                self._add(f"{at}.mlp.experts.down_proj", s.experts, s.hidden, s.inner)
            else:
                for name in ("gate", "up"):
                    self._add(f"{at}.mlp.{name}_proj.weight", s.inner, s.hidden)
                self._add(f"{at}.mlp.down_proj.weight", s.hidden, s.inner)

    def _add(self, name: str, *shape: int) -> None:
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 1.0
        weight = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
        self.weights[name] = weight.normal_(0.0, scale) if len(shape) > 1 else weight.fill_(1.0)

    def read_bytes(self, experts: float) -> float:
        """Return the bytes of the tensors that a step uses, with this many experts in each layer."""
        table = self.weights["model.embed_tokens.weight"].nbytes
        in_experts = sum(weight.nbytes for name, weight in self.weights.items() if ".experts." in name)
        share = experts / self.sizes.experts if self.sizes.experts else 1.0
        return float(sum(w.nbytes for w in self.weights.values()) - table - in_experts + share * in_experts)

    def step(self, x: Any, caches: list[tuple[Any, Any]], chosen: list[Any]) -> Any:
        """Decode one token of each row of `x`; the experts of each layer are put into `chosen`."""
        s, w, b = self.sizes, self.weights, x.shape[0]
        for i, (k_cache, v_cache) in enumerate(caches):
            at = f"model.layers.{i}"
            h = F.rms_norm(x, (s.hidden,), w[f"{at}.input_layernorm.weight"])
            q = F.linear(h, w[f"{at}.self_attn.q_proj.weight"]).view(b, s.heads, 1, s.head_dim)
            k_cache[:, :, -1] = F.linear(h, w[f"{at}.self_attn.k_proj.weight"]).view(b, s.kv_heads, s.head_dim)
            v_cache[:, :, -1] = F.linear(h, w[f"{at}.self_attn.v_proj.weight"]).view(b, s.kv_heads, s.head_dim)
            seen = F.scaled_dot_product_attention(q, k_cache, v_cache, enable_gqa=True).reshape(b, -1)
            x = x + F.linear(seen, w[f"{at}.self_attn.o_proj.weight"])
            h = F.rms_norm(x, (s.hidden,), w[f"{at}.post_attention_layernorm.weight"])
            x = x + (self._experts(at, h, chosen[i]) if s.experts else self._mlp(at, h))
        return F.linear(F.rms_norm(x, (s.hidden,), w["model.norm.weight"]), w["lm_head.weight"]).argmax(-1)

    def _mlp(self, at: str, h: Any) -> Any:
        w = self.weights
        gate, up = F.linear(h, w[f"{at}.mlp.gate_proj.weight"]), F.linear(h, w[f"{at}.mlp.up_proj.weight"])
        return F.linear(F.silu(gate) * up, w[f"{at}.mlp.down_proj.weight"])

    def _experts(self, at: str, h: Any, chosen: Any) -> Any:
        """Multiply the tokens, in the order of their experts, with those that at least one of them uses."""
        s, w = self.sizes, self.weights
        score, expert = F.linear(h, w[f"{at}.mlp.gate.weight"]).softmax(-1).topk(s.used, dim=-1)
        chosen.copy_(expert)
        order = expert.flatten().argsort(stable=True)
        numbers = torch.arange(s.experts, device=h.device)
        ends = (expert.flatten()[:, None] == numbers).sum(0).cumsum(0).to(torch.int32)
        rows = h[order // s.used]
        both = _grouped(rows, w[f"{at}.mlp.experts.gate_up_proj"], ends)
        inner = F.silu(both[:, : s.inner]) * both[:, s.inner :]
        out = _grouped(inner.contiguous(), w[f"{at}.mlp.experts.down_proj"], ends) * score.flatten()[order, None]
        return torch.zeros_like(h).index_add_(0, order // s.used, out.to(h.dtype))


def _grouped(rows: Any, weights: Any, ends: Any) -> Any:
    multiply = getattr(F, "grouped_mm", None) or torch._grouped_mm
    return multiply(rows, weights.transpose(-2, -1), offs=ends)


def write_model(decoder: Decoder, directory: Path) -> None:
    """Write config.json and safetensors with the headers of these tensors, in shards; their content is a hole."""
    shards: list[dict[str, Any]] = [{}]
    end = 0
    for name, weight in decoder.weights.items():
        if end and end + weight.nbytes > SHARD_BYTES:
            shards.append({})
            end = 0
        place = [end, end + weight.nbytes]
        shards[-1][name] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": place}
        end = place[1]
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    for file_name, header in zip(names, shards, strict=True):
        text = json.dumps(header).encode()
        size = 8 + len(text) + max(entry["data_offsets"][1] for entry in header.values())
        with (directory / file_name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(size)
    places = {name: file_name for file_name, header in zip(names, shards, strict=True) for name in header}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (directory / "config.json").write_text(json.dumps(decoder.sizes.config()))


def measure(decoder: Decoder, batch: int, context: int) -> tuple[float, float]:
    """Return the seconds of a step, the median of several rounds, and the experts that a layer used on average."""
    s = decoder.sizes
    x = torch.randn(batch, s.hidden, device="cuda", dtype=torch.bfloat16)
    shape = (batch, s.kv_heads, context, s.head_dim)
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    caches = [(torch.randn(shape, **kind), torch.randn(shape, **kind)) for _ in range(s.layers)]
    chosen = [torch.zeros(batch, max(1, s.used), device="cuda", dtype=torch.int64) for _ in range(s.layers)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            decoder.step(x, caches, chosen)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step(x, caches, chosen)
    for _ in range(REPLAYS):
        graph.replay()
    rounds = []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        rounds.append(start.elapsed_time(end) / REPLAYS / 1e3)
    used = sum(len(experts.unique()) for experts in chosen) / s.layers if s.experts else 0.0
    return median(rounds), used


def figures_of_gpu() -> GpuFigures:
    reader = NvmlReader()
    gpus = reader.read()
    reader.close()
    return gpu_figures(gpus[0]) if gpus else gpu_named(torch.cuda.get_device_name())


def compare(name: str, model: ModelShape, decoder: Decoder, gpu: GpuFigures, batches: list[int], context: int) -> Any:
    serving, tolerance = Serving(context=context), MODELS[name][1]
    problems, steps, rows = [], dict[int, float](), list[dict[str, float]]()
    print(f"\n{name}: {model.total_bytes / 1e9:.2f} GB, {model.active_parameters / 1e9:.2f} B parameters a token")
    print("    b   GB/step   experts (expected)   measured      hard  expected   of the hard limit")
    for b in batches:
        with torch.inference_mode():
            step_s, used = measure(decoder, b, context)
        torch.cuda.empty_cache()
        found, hard = decode_step(model, gpu, serving, b), decode_step(model, gpu, serving, b, hard=True)
        assert found.seconds is not None and hard.seconds is not None
        expected = experts_read(model, b)
        kv = b * context * 2 * decoder.sizes.layers * decoder.sizes.kv_heads * decoder.sizes.head_dim * 2
        true_bytes = decoder.read_bytes(expected) + kv
        if abs(found.bytes / true_bytes - 1.0) > MAX_BYTES_ERROR:
            problems.append(f"b={b}: {found.bytes / 1e9:.3f} GB by the headers, {true_bytes / 1e9:.3f} in tensors")
        if step_s < hard.seconds:
            problems.append(f"b={b}: {1e3 * step_s:.3f} ms is below the hard limit, {1e3 * hard.seconds:.3f} ms")
        steps[b] = step_s
        rows.append({"b": b, "bytes": found.bytes, "tensor_bytes": true_bytes, "experts": used, "step_s": step_s,
                     "hard_s": hard.seconds, "expected_s": found.seconds})  # fmt: skip
        print(
            f"{b:5d}  {found.bytes / 1e9:8.3f}   {used:7.1f} ({expected:8.1f})   {1e3 * step_s:7.3f} ms "
            f"{1e3 * hard.seconds:9.3f} {1e3 * found.seconds:9.3f}   {hard.seconds / step_s:6.1%}"
        )
    limit = {b: decode_step(model, gpu, serving, b).seconds or 0.0 for b in steps}
    fit = fit_steps([(limit[b], steps[b]) for b in FITTED if b in steps])
    if fit is not None:
        print(f"  fit of {FITTED}: overhead {1e3 * fit.overhead_s:.3f} ms, efficiency {fit.efficiency:.3f}")
        for b in (b for b in PREDICTED if b in steps):
            off = predicted_step(limit[b], fit.overhead_s, fit.efficiency) / steps[b] - 1.0
            print(f"  b={b}: predicted {off:+.1%}")
            if abs(off) > tolerance:
                problems.append(f"b={b}: the fit is off by {off:+.1%}")
    return problems, rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="dense,moe")
    parser.add_argument("--context", type=int, default=2000)
    parser.add_argument("--batches", default="1,2,4,8,16,32,64")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    batches = [int(batch) for batch in options.batches.split(",")]
    torch.manual_seed(7)
    gpu, failed, results = figures_of_gpu(), False, dict[str, Any]()
    print(f"{gpu.name}: {(gpu.bandwidth or 0) / 1e9:.0f} GB/s ({gpu.bandwidth_from}); torch {torch.__version__}")
    for name in options.models.split(","):
        decoder = Decoder(MODELS[name][0])
        with tempfile.TemporaryDirectory() as directory:
            write_model(decoder, Path(directory))
            model = read_model(Path(directory))
        problems, rows = compare(name, model, decoder, gpu, batches, options.context)
        results[name] = rows
        for problem in problems:
            print(f"  NOT HELD {problem}")
        failed = failed or bool(problems)
        del decoder
        torch.cuda.empty_cache()
    if options.json is not None:
        options.json.write_text(json.dumps({"gpu": gpu.name, "bandwidth": gpu.bandwidth, "models": results}))
    print("not held" if failed else "all held")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
