"""Run the server of llama.cpp: `serve_llamacpp.py PORT MODEL SLOTS CONTEXT`; run by the Python that has `xllamacpp`."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main(port: str, model: str, slots: str, context: str) -> None:
    options = xllamacpp.CommonParams()
    options.model.path, options.model_alias = model, {"tiny"}
    options.hostnames, options.port = ["127.0.0.1"], int(port)
    options.n_parallel, options.n_ctx = int(slots), int(slots) * int(context)
    options.endpoint_metrics = options.endpoint_slots = options.endpoint_props = options.use_jinja = True
    # Its threads wait for each other in loops: with one for each core of a busy machine, they mostly wait.
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    # Its cache of prompts in RAM grows to 8 GiB, and makes it 5 % slower within ten minutes.
    options.cache_ram_mib = 0
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
