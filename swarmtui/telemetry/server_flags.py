"""How a server was started: its command line as flag → value, without what is secret, and how many seats that makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from swarmtui.telemetry.prometheus import samples

_LONG_NAMES = {
    "a": "alias", "b": "batch-size", "c": "ctx-size", "cb": "cont-batching", "ctk": "cache-type-k",
    "ctv": "cache-type-v", "dp": "data-parallel-size", "fa": "flash-attn", "m": "model", "md": "model-draft",
    "ngl": "n-gpu-layers", "np": "parallel", "pp": "pipeline-parallel-size", "q": "quantization", "sm": "split-mode",
    "t": "threads", "tp": "tensor-parallel-size", "ts": "tensor-split", "ub": "ubatch-size",
}  # fmt: skip
_SECRET_WORDS = frozenset(
    ("key", "keys", "apikey", "token", "secret", "secrets", "password", "passwd", "pass", "passphrase", "credential",
     "credentials", "auth", "authorization", "bearer", "cookie", "header", "headers")
)  # fmt: skip
_SECRET_VALUE = re.compile(
    r"\bhf_\w{16,}|\bsk-[\w-]{16,}|\bgh[pousr]_\w{16,}|\beyJ[\w-]{10,}\.|://[^/\s]*@|\bBearer\s", re.IGNORECASE
)
_NAMED_INSIDE = re.compile(r"([A-Za-z][\w-]*)[\"']?\s*[:=]")
_ENVIRONMENT = re.compile(
    r"(OLLAMA|LLAMA_ARG|VLLM|SGLANG|SGL|TGI)_\w+|(CUDA|HIP|ROCR|ZE)_VISIBLE_DEVICES|ONEAPI_DEVICE_SELECTOR"
)
_SERVERS = re.compile(
    r"vllm|sglang|llama-server|llama_cpp\.server|llamafile|ollama|text-generation-|transformers\S* serve|tabbyapi"
    r"|lmdeploy|litellm|koboldcpp|mlc_llm|aphrodite|trtllm-serve|swarmtui(\.| )sim",
    re.IGNORECASE,
)
_INTERPRETER = re.compile(r"(.*/)?(python|pypy)[\d.]*")
_ANCESTORS = 3
_TOO_MANY = 1 << 31


def parse_cmdline(argv: Sequence[str]) -> dict[str, str]:
    """Long flags without their dashes; what stands alone is "true"; what is given twice stands beside each other.

    A model named without a flag (`vllm serve MODEL`) is `model`. Flags that are secret by name or value are left out.
    """
    flags: dict[str, str] = {}
    words = list(argv[_program(argv) :])
    if words[:1] == ["serve"] and len(words) > 1 and not _is_flag(words[1]):
        words = ["--model", *words[1:]]
    for name, value in _pairs(words):
        if not _secret(name, value):
            flags[name] = f"{flags[name]}, {value}" if name in flags and flags[name] != value else value
    return flags


def flags_of(pid: int) -> dict[str, str] | None:
    """Of the process, or of the server's process that started it; null where it cannot be seen.

    It cannot in a container or of another user. A server that names its processes anew (VLLM::EngineCore) has lost its
    command line, but its parent has it.
    """
    try:
        process = psutil.Process(pid)
        settings = environment_of(process)
        for seen in (process, *process.parents()[:_ANCESTORS]):
            argv = seen.cmdline()
            if argv and "::" not in argv[0] and (seen is process or looks_like_server(argv)):
                flags = parse_cmdline(argv)
                if flags:
                    return {**(settings or {}), **flags}
    except (psutil.Error, OSError):
        return None
    return settings


def environment_of(process: psutil.Process) -> dict[str, str] | None:
    """The variables that servers take their settings from; null where we may not look."""
    try:
        found = process.environ()
    except (psutil.Error, OSError):
        return None
    return {n: v for n, v in sorted(found.items()) if _ENVIRONMENT.fullmatch(n) and not _secret(n, v)}


def looks_like_server(argv: Sequence[str]) -> bool:
    """By the program and its sub-command: what follows may name a model that somebody trains."""
    count = _program(argv)
    program = [word.rpartition("/")[2] for word in argv[:count]]
    return bool(_SERVERS.search(" ".join([*program, *argv[count : count + 1]])))


def flags_of_server_info(info: Mapping[str, Any]) -> dict[str, str]:
    """SGLang's /server_info: all its arguments, defaults too; those that are not set are left out."""
    plain = {str(k).replace("_", "-"): _plain(v) for k, v in info.items() if isinstance(v, str | int | float | bool)}
    return {name: value for name, value in plain.items() if value and not _secret(name, value)}


def flags_of_props(props: Mapping[str, Any]) -> dict[str, str]:
    """llama.cpp's /props, in the names of its flags."""
    known = {
        "parallel": props.get("total_slots"),
        "ctx-size": context_of_props(props),
        "model": props.get("model_path"),
    }
    return {name: _plain(value) for name, value in known.items() if isinstance(value, str | int) and value}


def context_of_props(props: Mapping[str, Any]) -> object:
    settings = props.get("default_generation_settings")
    return settings.get("n_ctx") if isinstance(settings, Mapping) else None


def flags_of_cache_config(metrics: str) -> dict[str, str]:
    """vLLM tells its cache's settings as labels of a metric."""
    found = samples(metrics, lambda name: name == "vllm:cache_config_info") or []
    labels = found[0].labels if found else {}
    wanted = ("block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization", "num_gpu_blocks")
    return {name.replace("_", "-"): labels[name] for name in wanted if labels.get(name, "None") != "None"}


def seats(engine: str, flags: Mapping[str, str] | None, props: Mapping[str, Any] | None = None) -> int | None:
    """Requests that it runs at once, over all its replicas; null where its flags do not say, and it does not tell."""
    unknown, flags, props = flags is None, flags or {}, props or {}
    match engine:
        case "vLLM":
            return _times(_number(flags, "max-num-seqs"), _number(flags, "data-parallel-size") or 1)
        case "SGLang":
            told = count(props.get("max_running_requests")) or _number(flags, "max-running-requests")
            return told or _sglang_by_itself(props)
        case "llama.cpp":
            slots = count(props.get("total_slots"))
            return slots or _number(flags, "parallel", "LLAMA_ARG_N_PARALLEL")
        case "Ollama":
            # Its own default is one; without a look at its environment nothing is known.
            return _number(flags, "OLLAMA_NUM_PARALLEL") or (None if unknown else 1)
        case "TGI":
            return _number(flags, "max-batch-size")
        case "simulator":
            return _times(_number(flags, "seats"), _number(flags, "replicas") or 1)
    return None


def _sglang_by_itself(props: Mapping[str, Any]) -> int | None:
    """What it has chosen, where nobody told it, for each of its data-parallel engines."""
    engines = objects_in(props.get("internal_states"))
    chosen = [count(engine.get("effective_max_running_requests_per_dp")) for engine in engines]
    return _times(chosen[0], count(props.get("dp_size")) or 1) if chosen else None


def _program(argv: Sequence[str]) -> int:
    """How many words name the program: one, or with an interpreter those up to the script or module."""
    place = 0
    if argv and _INTERPRETER.fullmatch(argv[0]):
        place = 1
        while place < len(argv) and argv[place].startswith("-") and argv[place] != "-m":
            place += 1
        if place < len(argv) and argv[place] == "-m":
            place += 1
    return place + 1


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not _is_flag(word):
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and place < len(words) and not _is_flag(words[place]):
            values.append(words[place])
            place += 1
        yield _long_name(name), " ".join(values) if values or equals else "true"


def _is_flag(word: str) -> bool:
    """-1 and -0.5 are values."""
    return bool(re.match(r"--?[A-Za-z]", word))


def _long_name(flag: str) -> str:
    if flag.startswith("--"):
        return flag.removeprefix("--").replace("_", "-")
    short = flag.removeprefix("-")
    return _LONG_NAMES.get(short, short)


def _secret(name: str, value: str) -> bool:
    return _named_secret(name) or bool(_SECRET_VALUE.search(value)) or any(map(_named_secret, _inner_names(value)))


def _named_secret(name: str) -> bool:
    """Word by word: --max-num-batched-tokens and --tokenizer are none."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[-_.]+", name.lower()))


def _inner_names(value: str) -> Iterable[str]:
    """NAME=… and {"name": …} inside a value."""
    return _NAMED_INSIDE.findall(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(flags: Mapping[str, str], *names: str) -> int | None:
    return next((int(flags[name]) for name in names if re.fullmatch(r"[1-9]\d{0,8}", flags.get(name, ""))), None)


def count(value: object) -> int | None:
    """A number of things that there can be; a server may write anything in its place."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _TOO_MANY else None


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _times(count: int | None, replicas: int) -> int | None:
    return None if count is None else count * replicas
