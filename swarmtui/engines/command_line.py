"""Parse a server's command line into flags, drop secrets, and choose the flags that a shared session shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from swarmtui.model.redaction import MASK, cover_url, has_key_prefix, is_secret_name

# NAME=… and {"name": …} inside a value.
_INNER_NAME = re.compile(r"([A-Za-z][\w-]*)[\"']?\s*[:=]")
_INTERPRETER = re.compile(r"(.*/)?(python|pypy)[\d.]*")
_SUBCOMMAND = re.compile(r"[a-z][a-z-]*")
_FLAG = re.compile(r"--?[A-Za-z]")  # -1 and -0.5 are values


def parse_command_line(argv: Sequence[str], short_flags: Mapping[str, str]) -> dict[str, str]:
    """Return flags by long name without dashes; a flag without a value is "true", repeated values are joined by ", ".

    A positional model (`vllm serve MODEL`) becomes `model`. Flags that are secret by name or value are left out.
    """
    flags: dict[str, str] = {}
    words = list(argv[_program_length(argv) :])
    if words[:1] == ["serve"] and len(words) > 1 and not _FLAG.match(words[1]):
        words = ["--model", *words[1:]]
    for flag, value in _pairs(words):
        short = flag.removeprefix("-")
        long = flag.startswith("--")
        name = flag.removeprefix("--").replace("_", "-") if long else short_flags.get(short, short)
        if not is_secret(name, value):
            shown = _cover(value)
            flags[name] = f"{flags[name]}, {shown}" if name in flags and flags[name] != shown else shown
    return flags


def program_name(argv: Sequence[str]) -> str:
    """Return the program without folders, and its subcommand: later words may name a model or a file."""
    count = _program_length(argv)
    program = [word.rpartition("/")[2] for word in argv[:count]]
    return " ".join([*program, *(word for word in argv[count : count + 1] if _SUBCOMMAND.fullmatch(word))])


def split_words(text: str) -> list[str]:
    """Split a command as a shell does; at spaces if a quotation mark is missing."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def is_secret(name: str, value: str) -> bool:
    names = (name, *_INNER_NAME.findall(value))
    return has_key_prefix(value) or any(map(is_secret_name, names))


def redact_flags(text: str) -> str:
    """Replace the values of flags and variables that are secret by name or value; other text is unchanged."""
    words = split_words(text)
    shown, hidden = list[str](), False
    for word in words:
        name, equals, value = word.partition("=")
        is_flag = bool(_FLAG.match(word))
        if hidden and not is_flag:
            shown.append(MASK)
        elif equals and is_secret(name, value):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(MASK if is_secret("", word) else _cover(word))
        # What follows --api-key, or the name in "Authorization: Bearer KEY".
        announced = is_secret_name(name) and ((is_flag and not equals) or word.endswith(":"))
        hidden = announced or (hidden and not is_flag)
    return text if shown == words else " ".join(shown)


def _cover(value: str) -> str:
    """Mask what may be secret in a URL, also after --flag=."""
    scheme = re.search(r"\w+://", value)
    return value if scheme is None else value[: scheme.start()] + cover_url(value[scheme.start() :])[0]


def _program_length(argv: Sequence[str]) -> int:
    """Return how many words name the program: one, or for an interpreter those up to the script or module."""
    index = 0
    if argv and _INTERPRETER.fullmatch(argv[0]):
        index = 1
        while index < len(argv) and argv[index].startswith("-") and argv[index] != "-m":
            index += 1
        if index < len(argv) and argv[index] == "-m":
            index += 1
    return index + 1


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _FLAG.match(word):
            continue
        flag, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and index < len(words) and not _FLAG.match(words[index]):
            values.append(words[index])
            index += 1
        yield flag, " ".join(values) if values or equals else "true"


# Flags that decide how fast a server is: the values of others may be private, such as paths, addresses, names, keys.
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
