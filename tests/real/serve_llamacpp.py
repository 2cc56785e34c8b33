"""Run the server of llama.cpp, with the Python that has `xllamacpp`.

serve_llamacpp.py PORT MODEL SLOTS CONTEXT
serve_llamacpp.py --port PORT -m MODEL [-np N] [-c N] [-b N] [-ub N] [-t N] [-ctk TYPE] [-ctv TYPE] [-fa on|off|auto]

The second form has the flags of `llama-server`, by their short and long names; -c is the context of all slots together.
"""

from __future__ import annotations

import argparse
import signal
import sys

import xllamacpp


def parse(words: list[str]) -> argparse.Namespace:
    if words and words[0].isdigit():
        port, model, slots, context = words
        words = ["--port", port, "-m", model, "-np", slots, "-c", str(int(slots) * int(context))]
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-c", "--ctx-size", type=int, default=4096)
    parser.add_argument("-b", "--batch-size", type=int, default=2048)
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512)
    # Its threads wait for each other in loops: with one for each core of a busy machine, they mostly wait.
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-ctk", "--cache-type-k", default="f16", choices=("f16", "q8_0", "q4_0"))
    parser.add_argument("-ctv", "--cache-type-v", default="f16", choices=("f16", "q8_0", "q4_0"))
    parser.add_argument("-fa", "--flash-attn", default="auto", choices=("on", "off", "auto"))
    return parser.parse_args(words)


def main(words: list[str]) -> None:
    given, options = parse(words), xllamacpp.CommonParams()
    options.model.path, options.model_alias = given.model, {"tiny"}
    options.hostnames, options.port = ["127.0.0.1"], given.port
    options.n_parallel, options.n_ctx = given.parallel, given.ctx_size
    options.n_batch, options.n_ubatch = given.batch_size, given.ubatch_size
    types = {name: getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}") for name in ("f16", "q8_0", "q4_0")}
    options.cache_type_k, options.cache_type_v = types[given.cache_type_k], types[given.cache_type_v]
    attention = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[given.flash_attn]
    options.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{attention}")
    options.endpoint_metrics = options.endpoint_slots = options.endpoint_props = options.use_jinja = True
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = given.threads
    # Its cache of prompts in RAM grows to 8 GiB, and makes it 5 % slower within ten minutes.
    options.cache_ram_mib = 0
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
