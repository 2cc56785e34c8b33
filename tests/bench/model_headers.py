"""Measure how long the headers of a large model take to read: 100 shards with 60,000 tensors, and a large vocabulary.

    python -m tests.bench.model_headers

Writes sparse files of some 200 GB in the temporary directory, which take a few MB. The goal is 0.2 s for 100 shards.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from swarmtui.telemetry.model_files.reader import read_model
from tests.telemetry.model_builders import Stored, settings, write_gguf, write_safetensors

GOAL_S = 0.2
SHARDS, LAYERS, EXPERTS = 100, 78, 256


def best(path: Path) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        read_model(path)
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> int:
    tensors: list[Stored] = [(f"{name}.weight", "BF16", (129_280, 7168)) for name in ("model.embed_tokens", "lm_head")]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        tensors += [(f"{at}.self_attn.{name}_proj.weight", "F8_E4M3", (7168, 7168)) for name in "qkvo"]
        tensors += [
            (f"{at}.mlp.experts.{expert}.{name}_proj.weight", "F8_E4M3", (2048, 7168))
            for expert in range(EXPERTS)
            for name in ("gate", "up", "down")
        ]
    more = {"num_experts": EXPERTS, "num_experts_per_tok": 8, "quantization_config": {"quant_method": "fp8"}}
    with tempfile.TemporaryDirectory() as directory:
        shards = Path(directory)
        write_safetensors(shards, tensors, SHARDS)
        config = settings((7168, LAYERS, 64, 8, 128, 2048, 129_280), {}, tied=False) | more
        (shards / "config.json").write_text(json.dumps(config))
        gguf = shards / "model.gguf"
        values = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 4096,
                  "tokenizer.ggml.tokens": [f"token{number}" for number in range(150_000)],
                  "tokenizer.ggml.merges": [f"merge {number}" for number in range(150_000)]}  # fmt: skip
        write_gguf(gguf, values, [("blk.0.attn_q.weight", "Q4_K", (4096, 4096))])
        taken = {f"safetensors, {SHARDS} shards, {len(tensors):,} tensors": best(shards), "GGUF": best(gguf)}
    for name, seconds in taken.items():
        print(f"{name}: {1e3 * seconds:.0f} ms")
    return 1 if max(taken.values()) > GOAL_S else 0


if __name__ == "__main__":
    sys.exit(main())
