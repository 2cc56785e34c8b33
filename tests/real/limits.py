"""Hold the limits of `swarmtui run` against a real server on a GPU: bytes, the hard limit, the fit, and what binds.

    python -m tests.real.limits --vllm-python PY [--cpu] | --llama-server PATH --python PY
                                [--dir D] [--float16] [--api A] [--only dense,moe,…] [--json F]

The server is a vLLM (PY has it), or a llama-server that was built for the GPU of this host; then PY has gguf, numpy and
tokenizers, and D has 60 GB for the models. Weights are random; vLLM makes its own, and its files hold a header and no
data. With `--cpu`, which is for a vLLM without a GPU, only the case `kv` runs. Takes about ten minutes. Exits with
code 1 if the bytes of the headers are not those of the files (0.5 %), if a step is faster than the hard limit, if the
fit of levels 1 and 8 is off at 16, 32 or 64 by more than 15 % (dense) or 20 % (MoE), or if another resource is named
than the one that the case makes scarce.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from swarmtui.analysis.speed_of_light.fit import fit_steps, predicted_step
from swarmtui.analysis.speed_of_light.step import decode_step
from swarmtui.model.speed_of_light import Binding, SpeedOfLight
from tests.forwarding import ForwardingProxy
from tests.real.servers import is_up

_HERE = Path(__file__).parent
FITTED, PREDICTED = (1, 8), (16, 32, 64)
MAX_BYTES_ERROR = 0.005
MAX_FIT_ERROR = {"dense": 0.15, "moe": 0.20}
_START_TIMEOUT_S, _RUN_TIMEOUT_S = 180.0, 240.0
_DELAY_S = 0.5


class Case(NamedTuple):
    """A server, a load, and what binds at the highest level of it; `binds` is empty where the curve is what counts."""

    name: str
    model: str
    slots: int
    context: int
    levels: str
    tokens: tuple[int, int]
    requests: str = ""
    binds: tuple[Binding, ...] = ()
    delayed: bool = False
    blocks: int = 0  # of the KV cache, for vLLM; 0: as many as fit
    engines: tuple[str, ...] = ("vllm", "llama.cpp")  # llama.cpp has at most 256 slots
    front_ends: int = 1  # of vLLM


CASES = (
    Case("dense", "dense", 64, 1024, "1,8,16,32,64", (128, 256)),
    Case("moe", "moe", 64, 1024, "1,8,16,32,64", (128, 256)),
    Case("slots", "dense", 4, 1024, "1,4,8", (128, 256), binds=("slots",)),
    Case("long", "dense", 8, 16384, "8", (14000, 1024), "1C", binds=("bandwidth",)),
    # With 7 B parameters, its front end binds: 2.26 of 2.33 s TTFT were outside the engine.
    Case(
        "batch",
        "large",
        512,
        512,
        "8,512",
        (32, 128),
        "2C",
        binds=("compute",),
        engines=("vllm",),
        front_ends=4,
    ),
    Case("launch", "tiny", 8, 1024, "1,8", (128, 512), binds=("launch_overhead", "server_cpu")),
    Case("gateway", "dense", 8, 1024, "1,4", (128, 128), binds=("client",), delayed=True),
    Case("kv", "tiny", 16, 2048, "1,8", (512, 1024), "2C", binds=("kv_capacity",), blocks=256, engines=("vllm",)),
)


class DelayingGateway(ForwardingProxy):
    """Holds the beginning of every answer back."""

    async def _forward(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        await asyncio.sleep(_DELAY_S if b'"stream":true' in body else 0.0)
        await super()._forward(server, client, body)

    async def _relay(self, server: asyncio.StreamReader, client: asyncio.StreamWriter, body: bytes) -> None:
        while data := await server.read(65536):
            client.write(data)
            await client.drain()


def command(case: Case, port: int, options: argparse.Namespace) -> list[str]:
    if options.vllm_python:
        words = f"--served-model-name {case.model} --host 127.0.0.1 --port {port} --max-model-len {case.context}"
        # Whole steps as CUDA graphs, without the minute that compiling takes.
        compiled = ["--compilation-config", '{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}']
        device = ["--dtype", "float32", "--enforce-eager"] if options.cpu else compiled
        blocks = ["--num-gpu-blocks-override", str(case.blocks // (8 if options.cpu else 1))] if case.blocks else []
        # Only `vllm serve` starts several front ends; it needs a vLLM that was installed as a package.
        several = ["vllm.entrypoints.cli.main", "serve", str(model_path(case, options))]
        one = ["vllm.entrypoints.openai.api_server", "--model", str(model_path(case, options))]
        fronts = ["--api-server-count", str(case.front_ends)] if case.front_ends > 1 else []
        serve = [str(options.vllm_python), "-m", *(several if fronts else one), *fronts]
        slots = ["--load-format", "dummy", "--max-num-seqs", str(case.slots)]
        return [*serve, *slots, *words.split(), *device, *blocks]
    # The copies of prompts that it keeps in RAM take as long as many steps, in which the GPU waits.
    flags = (
        f"--cache-ram 0 -ngl 99 -fa on -np {case.slots} -c {case.slots * case.context} --host 127.0.0.1 --port {port}"
    )
    return [str(options.llama_server), "-m", str(model_path(case, options)), *flags.split(), "--metrics"]


def model_path(case: Case, options: argparse.Namespace) -> Path:
    return Path(options.dir / f"{case.model}.{'hf' if options.vllm_python else 'gguf'}")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def served(case: Case, options: argparse.Namespace) -> Iterator[int]:
    """Start the server of a case; yield the port at which it answers."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if options.cpu:
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    with (options.dir / f"{case.name}.log").open("wb") as log:
        server = subprocess.Popen(
            command(case, port, options), env=environment, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    try:
        while not is_up(f"http://127.0.0.1:{port}/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{case.name}: the server did not start; see {options.dir / f'{case.name}.log'}")
            time.sleep(0.2)
        yield port
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def measure(case: Case, url: str, folder: Path, api: str) -> dict[str, Any]:
    """Run the load of a case; return the session as `run --json` prints it.

    Tokens are drawn: the likeliest one would be the same in all streams, and with it the experts.
    """
    workload = folder / f"{case.name}.toml"
    prompt, answer = case.tokens
    text = (
        f'kind = "random"\nname = "{case.name}"\ninput_tokens = {prompt}\noutput_tokens = {answer}\ntemperature = 1.0\n'
    )
    workload.write_text(text)
    words = [sys.executable, "-m", "swarmtui", "run", "--endpoint", url, "--workload", str(workload), "--json"]
    length = ["--requests", case.requests] if case.requests else []
    done = subprocess.run(
        [*words, "--api", api, "--levels", case.levels, *length, "--session-dir", str(folder / "sessions")],
        capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    (folder / f"{case.name}.run.log").write_text(done.stderr)
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout))


def judge(case: Case, session: dict[str, Any], options: argparse.Namespace) -> Iterator[str]:
    """Yield a line for each level, and one that begins with `WRONG` for each thing that does not hold."""
    found = msgspec.convert(session["speed_of_light"], SpeedOfLight)
    model, gpu = found.model, found.gpu
    for missing in found.missing:
        yield f"  {missing.text}"
    if not options.cpu and not case.delayed and (model is None or gpu is None):
        yield "WRONG: model or GPU not known"
    points = {}
    for level in found.levels:
        step = 0.0 if level.step_s is None else 1e3 * level.step_s
        shown = f"  C={level.c:<4} batch {level.batch:6.1f}  context {level.context:7.0f}  step {step:7.2f} ms"
        if model is not None and gpu is not None and level.step_s is not None:
            serving = msgspec.structs.replace(found.serving, context=level.context)
            expected = decode_step(model, gpu, serving, level.batch)
            points[level.c] = (expected.seconds or 0.0, level.step_s)
            shown += f"  {expected.bytes / 1e9:6.2f} GB  {level.share or 0.0:5.1%} of the limit"
        yield f"{shown}  {level.binds}: {level.because}"
        if level.share is not None and level.share > 1.0:
            yield f"WRONG: at C={level.c} a step is faster than the hard limit"
    yield f"  fit {found.fit}"
    if not options.cpu and model is not None:
        path = model_path(case, options)
        path = path / "model.safetensors" if path.is_dir() else path
        error = model.total_bytes / tensor_bytes(path, model.total_bytes) - 1.0
        yield f"  {model.total_bytes / 1e9:.3f} GB of weights, the file {path.stat().st_size / 1e9:.3f} GB"
        if abs(error) > MAX_BYTES_ERROR:
            yield f"WRONG: bytes are off by {error:.2%}"
    if case.name in MAX_FIT_ERROR:
        fit = fit_steps([points[c] for c in FITTED])
        for c in PREDICTED:
            if fit is None or c not in points:
                yield f"WRONG: no fit, or C={c} was not measured"
                continue
            limit, step = points[c]
            off = predicted_step(limit, fit.overhead_s, fit.efficiency) / step - 1.0
            wrong = "WRONG: " if abs(off) > MAX_FIT_ERROR[case.name] else "  "
            terms = f"(η {fit.efficiency:.2f}, t0 {1e3 * fit.overhead_s:.2f} ms)"
            yield f"{wrong}levels 1 and 8 predict C={c} {off:+.1%} {terms}"
    if case.binds and found.levels[-1].binds not in case.binds:
        yield f"WRONG: {found.levels[-1].binds} is said to bind, arranged was {' or '.join(case.binds)}"


def tensor_bytes(path: Path, claimed: float) -> float:
    """Return the bytes of a file that hold tensors: what is not in its header, which is at most 2 MiB here."""
    size = path.stat().st_size
    return claimed if 0 <= size - claimed < 2 << 20 else float(size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--vllm-python", type=Path)
    parser.add_argument("--cpu", action="store_true", help="the vLLM has no GPU")
    parser.add_argument("--dir", type=Path, default=Path("limits"))
    parser.add_argument("--float16", action="store_true", help="make the models in float16 instead of bfloat16")
    parser.add_argument("--api", default="chat", help="chat or completions")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in options.only.split(",") if name] or [
        case.name
        for case in CASES
        if (case.name == "kv" if options.cpu else options.vllm_python or "llama.cpp" in case.engines)
    ]
    wrong, results = 0, {}
    for case in CASES:
        if case.name not in wanted:
            continue
        path = model_path(case, options)
        if not path.exists():
            python = options.vllm_python or options.python
            floats = ["f16"] if options.float16 else []
            making = [str(python), str(_HERE / "make_model.py"), path.suffix[1:], str(path), path.stem, *floats]
            subprocess.run(making, check=True)
        begun = time.monotonic()
        with served(case, options) as port:
            if case.delayed:
                with DelayingGateway("127.0.0.1", port) as gateway:
                    session = measure(case, gateway.url, options.dir, options.api)
            else:
                session = measure(case, f"http://127.0.0.1:{port}", options.dir, options.api)
        lines = list(judge(case, session, options))
        print(f"{case.name} ({time.monotonic() - begun:.0f} s)", *lines, sep="\n", flush=True)
        wrong += sum(line.startswith("WRONG") for line in lines)
        results[case.name] = {"lines": lines, "speed_of_light": session["speed_of_light"], "levels": session["levels"]}
        if options.json:
            options.json.write_text(json.dumps(results))
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
