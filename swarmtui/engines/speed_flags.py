"""Flags of inference servers that decide how fast they are: the only ones that a shared session shows.

The values of other flags may be private: paths, addresses, names, keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from swarmtui.model.redaction import has_key_prefix, is_secret_name

_PLAIN_VALUE = re.compile(r"[\w.+-]{1,24}(?:[,:][\w.+-]{1,24}){0,7}|[\d., ]{1,80}|", re.ASCII)

_LONG = """
    api-server-count async-scheduling attention-backend attn-backend batch-size block-size cache-dtype cache-ram
    cache-reuse cache-type-k cache-type-k-draft cache-type-v cache-type-v-draft chunked-prefill-size
    compilation-config cont-batching context-length cpu-moe cpu-offload-gb cpu-range ctx-size cuda-graph-bs
    cuda-graph-max-bs cuda-memory-fraction data-parallel-size dbo-decode-token-threshold
    decode-context-parallel-size defrag-thold device disable-chunked-prefill disable-cuda-graph
    disable-custom-all-reduce disable-log-requests disable-overlap-schedule disable-radix-cache dp-size draft-max
    draft-min draft-p-min dtype enable-chunked-prefill enable-dp-attention enable-ep-moe enable-eplb
    enable-expert-parallel enable-mixed-chunk enable-prefix-caching enable-torch-compile enforce-eager ep-size
    flash-attn fp8-gemm-backend gpu-layers gpu-layers-draft gpu-memory-utilization grammar-backend kv-cache-dtype
    kv-cache-memory-bytes kv-cache-metrics kv-offload kv-offloading-size kv-unified load-format
    long-prefill-token-threshold main-gpu max-batch-prefill-tokens max-batch-size max-batch-total-tokens
    max-concurrent-requests max-input-tokens max-model-len max-num-batched-tokens max-num-partial-prefills
    max-num-seqs max-prefill-tokens max-running-requests max-seq-len-to-capture max-total-tokens mem-fraction-static
    mlock mmap moe-a2a-backend moe-runner-backend n-cpu-moe n-gpu-layers no-cache-prompt no-cont-batching
    no-enable-chunked-prefill no-enable-prefix-caching no-kv-offload no-kv-unified no-mmap
    num-continuous-decode-steps num-gpu-blocks num-gpu-blocks-override num-scheduler-steps num-shard
    num-speculative-tokens numa optimization-level override-tensor page-size parallel performance-mode
    pipeline-parallel-size poll pp-size prefill-max-requests prefix-caching-hash-algo preset prio quantization
    quantize repack replicas sampling-backend schedule-conservativeness schedule-policy scheduling-policy sharded
    slots speculate speculative-algorithm speculative-eagle-topk speculative-num-draft-tokens speculative-num-steps
    speed split-mode swa-full swap-space tensor-parallel-size tensor-split threads threads-batch threads-http
    torch-compile-max-bs tp-size ubatch-size
"""
_SHORT = "b c ctk ctv dp fa nc ngl np pp q t tb tp ub"
_VARIABLES = """
    LLAMA_ARG_BATCH LLAMA_ARG_CACHE_TYPE_K LLAMA_ARG_CACHE_TYPE_V LLAMA_ARG_CONT_BATCHING LLAMA_ARG_CTX_SIZE
    LLAMA_ARG_FLASH_ATTN LLAMA_ARG_N_GPU_LAYERS LLAMA_ARG_N_PARALLEL LLAMA_ARG_THREADS LLAMA_ARG_UBATCH
    OLLAMA_CONTEXT_LENGTH OLLAMA_FLASH_ATTENTION OLLAMA_KV_CACHE_TYPE OLLAMA_MAX_LOADED_MODELS OLLAMA_MAX_QUEUE
    OLLAMA_NUM_PARALLEL OLLAMA_SCHED_SPREAD VLLM_ATTENTION_BACKEND VLLM_USE_FLASHINFER_SAMPLER VLLM_USE_V1
"""

# Without dashes, as engines name them.
SPEED_FLAGS = frozenset(f"{_LONG} {_SHORT} {_VARIABLES}".split())


def is_shared_flag(name: str, value: str) -> bool:
    known = name.lstrip("-") in SPEED_FLAGS and not is_secret_name(name)
    return known and bool(_PLAIN_VALUE.fullmatch(value)) and not has_key_prefix(value)


def shared_flags(flags: Mapping[str, str]) -> dict[str, str]:
    """Return the flags that change how fast a server is, with plain values."""
    return {name: value for name, value in flags.items() if is_shared_flag(name, value)}
