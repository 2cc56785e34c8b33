"""Readings of GPUs and servers, and what is derived from them: energy, TTFT parts, measurement quality, history.

Null: not measured, or not supported.
"""

from __future__ import annotations

from typing import Literal

from swarmtui.model.base import Stored
from swarmtui.model.speed_of_light import ModelShape


class Gpu(Stored, frozen=True, kw_only=True):
    """One GPU at one time. `energy_j` is a counter since the driver was loaded; only its differences have a meaning.

    With `unified_memory` the memory is that of the host, which the GPU shares (GB10, Jetson), with all its processes.
    `memory_bandwidth` is in bytes per second, by the width of the bus and the highest clock; `compute_capability`
    (`9.0`) and `cores` are those of NVIDIA GPUs.
    `throttle` lists the reasons for lowered clocks; empty is none, null is not known.
    `pids` are the processes that compute on it. A MIG device is `part_of` the GPU with that UUID, whose figures include
    its memory and processes. `host` is the name of the node that reported it, empty for the session's own host;
    `other_host`: no endpoint runs there, so that it is shown and not counted.
    """

    uuid: str
    index: int
    name: str
    simulated: bool = False
    memory_used: int | None = None
    memory_total: int | None = None
    unified_memory: bool = False
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    utilisation: float | None = None
    temperature_c: float | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_bandwidth: float | None = None
    compute_capability: str = ""
    cores: int | None = None
    throttle: tuple[str, ...] | None = None
    pids: tuple[int, ...] = ()
    part_of: str = ""
    host: str = ""
    other_host: bool = False


class Bucket(Stored, frozen=True, kw_only=True, array_like=True):
    """A cumulative histogram bucket: the number of observations of at most `le`."""

    le: float
    count: float


class ServerHistogram(Stored, frozen=True, kw_only=True):
    """A histogram since the start of the server; the buckets of several engines are added."""

    count: float
    sum: float
    buckets: tuple[Bucket, ...] = ()


class ServerState(Stored, frozen=True, kw_only=True):
    """The metrics of a server. Counters start with the server: one that decreases means that it was restarted.

    `prompt_tokens` include those from the cache, of which `external_tokens` were in host memory or elsewhere;
    `evicted_tokens` left that of the GPU. `kv_use` is that of the fullest engine. `prefill_seconds` is a counter
    of servers that have no histogram. `accepted_at` counts accepted draft tokens by their position. `vram_bytes` is the
    memory of the loaded models.
    """

    engine: str
    url: str = ""
    running: float | None = None
    waiting: float | None = None
    kv_use: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    external_tokens: float | None = None
    evicted_tokens: float | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    preemptions: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_at: ServerHistogram | None = None
    finished: float | None = None
    ttft: ServerHistogram | None = None
    itl: ServerHistogram | None = None
    queue: ServerHistogram | None = None
    prefill: ServerHistogram | None = None
    decode: ServerHistogram | None = None
    e2e: ServerHistogram | None = None
    prefill_seconds: float | None = None
    vram_bytes: float | None = None


class ProgramTimes(Stored, frozen=True, kw_only=True):
    """The CPU time of the programs on this host that are neither swarmtui nor the server; only differences count.

    `others_s` is that of all of them, also of those that have ended; `by_name` holds the programs that were seen to be
    busy, and `pids` the process of each, null if there were several. `cpus` is the number that swarmtui may use.
    """

    t_ns: int
    cpus: int
    others_s: float
    by_name: dict[str, float] = {}
    pids: dict[str, int | None] = {}


class HostLoad(Stored, frozen=True, kw_only=True, omit_defaults=True):
    """Counters of this host's CPUs; only their differences have a meaning.

    `pressure_us` is the time in which some task had to wait for a CPU, `waited_ns` that in which workers and servers
    of this host had to, null if such a server is not known. `steal_ticks` of all `ticks` the hypervisor gave to others.
    `programs` were read at that time or a little earlier; null if the process of a server here is not known.
    """

    t_ns: int
    pressure_us: int | None = None
    waited_ns: int | None = None
    steal_ticks: int | None = None
    ticks: int | None = None
    programs: ProgramTimes | None = None


class Program(Stored, frozen=True, kw_only=True):
    """A program that is neither swarmtui nor the server, and how many CPU cores it used on average.

    `pid` is its process, null if several had this name.
    """

    name: str
    cores: float
    pid: int | None = None


class HostUse(Stored, frozen=True, kw_only=True):
    """Shares of a level's time: some task waited for a CPU, workers and servers did, the hypervisor ran other machines.

    `waited` is a sum over processes. `others` is the share of the CPU time that other programs used, and `programs` are
    the busiest of them.
    """

    pressure: float | None = None
    waited: float | None = None
    steal: float | None = None
    others: float | None = None
    programs: tuple[Program, ...] = ()


class Telemetry(Stored, frozen=True, kw_only=True):
    """All readings at one time. A problem is a sentence that says why there are none.

    Servers are read less often than GPUs: `servers_t_ns` is when; null if it was not recorded.
    """

    t_ns: int
    gpus: tuple[Gpu, ...] = ()
    gpu_problem: str = ""
    servers: tuple[ServerState, ...] = ()
    server_problem: str = ""
    servers_t_ns: int | None = None
    host: HostLoad | None = None

    @property
    def serving_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of hosts that run an endpoint: the only ones that figures are about."""
        return tuple(gpu for gpu in self.gpus if not gpu.other_host)

    @property
    def waiting(self) -> float | None:
        """The queue length that the servers report."""
        known = [state.waiting for state in self.servers if state.waiting is not None]
        return sum(known) if known else None

    @property
    def servers_read_ns(self) -> int:
        return self.t_ns if self.servers_t_ns is None else self.servers_t_ns


class KvFigures(Stored, frozen=True, kw_only=True):
    """Prompt tokens of a level by where the server had them, and its KV cache meanwhile; null is not known.

    Of the `cached_tokens`, `external_tokens` came from the memory of the host or a store elsewhere. The others were
    read: `recomputed_tokens` of them again, since they were no longer cached. `evicted_tokens` left the cache of the
    GPU. `kv_use` is the highest share of it in use, `context_tokens` the mean context of an agent, and `fits` how many
    of these should fit in.
    """

    cached_tokens: int | None = None
    external_tokens: int | None = None
    recomputed_tokens: int | None = None
    evicted_tokens: int | None = None
    preemptions: float | None = None
    kv_use: float | None = None
    context_tokens: float | None = None
    fits: float | None = None


class Speculation(Stored, frozen=True, kw_only=True):
    """Speculative decoding at a level: a stream has `tokens_per_step` × `steps_per_s` tok/s.

    Of the tokens that a step drafts, on average, the share `acceptance` was right; `by_position` is how often the
    first, second … of them was, as a share of all drafts; empty if that is not known.
    """

    tokens_per_step: float
    steps_per_s: float | None
    drafted_per_step: float
    acceptance: float
    by_position: tuple[float, ...] = ()


class Energy(Stored, frozen=True, kw_only=True):
    """The energy that the GPUs used in the time of the main throughput, by the differences of their energy counters.

    `tokens_per_j` equals tok/s per W. `throttled` is the share of readings with clocks lowered by heat or power.
    `utilisation` is the mean share of time in which they computed anything.
    `all_gpus`: those of the host with memory in use, because it is not known which of them the server uses.
    """

    seconds: float
    joules: float | None = None
    mean_w: float | None = None
    j_per_token: float | None = None
    tokens_per_j: float | None = None
    peak_memory: int | None = None
    throttled: float | None = None
    throttle: tuple[str, ...] = ()
    utilisation: float | None = None
    simulated: bool = False
    all_gpus: bool = False


class TtftSplit(Stored, frozen=True, kw_only=True):
    """The mean time to the first token, in parts; `rest_s` is what is not known separately.

    `estimated`: derived from the level with one stream, because the server does not report it.
    """

    ttft_s: float
    queue_s: float | None = None
    prefill_s: float | None = None
    rest_s: float | None = None
    estimated: bool = False

    @property
    def known_parts(self) -> tuple[tuple[str, float], ...]:
        parts = (("queue", self.queue_s), ("prefill", self.prefill_s), ("rest", self.rest_s))
        return tuple((name, value) for name, value in parts if value is not None)


class DiscoveredServer(Stored, frozen=True, kw_only=True):
    """A server found on this host. `gpus` are UUIDs; `flags` are its command line, without secrets.

    `context` is the longest that each request may have: of llama.cpp, that of one slot.
    `kv_tokens` is the size of its KV cache, over all its engines, and `block_size` that of the blocks in which prompts
    are cached. Null flags are not known; `problem` says why it cannot be used or read. `user` is who started it, if
    that is another person. `shape` is that of its model, read from the files of it, null with a `shape_problem` if they
    were not found; `kv_token_bytes` is what a token takes in the KV cache, as the server reports.
    """

    url: str
    engine: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    context: int | None = None
    slots: int | None = None
    kv_tokens: int | None = None
    block_size: int | None = None
    kv_token_bytes: float | None = None
    shape: ModelShape | None = None
    shape_problem: str = ""
    pid: int | None = None
    user: str = ""
    gpus: tuple[str, ...] = ()
    flags: dict[str, str] | None = None
    reachable: bool = True
    problem: str = ""


# What a workload promises: prompts that are not in the prefix cache, prompts of which the first part is, or any.
CachePromise = Literal["cold", "shared", "warm"]


class QualityFacts(Stored, frozen=True, kw_only=True):
    """Facts about the conditions of a measurement; null is not known.

    `lag_p99_s` is how late the client's event loop was, `tpot_s` the time per token of a stream, `turnaround` the time
    between the end of a stream and its next request over the time of the requests, `send_delay` the delay of scheduled
    requests over their TTFT, `worker_cpu` the share of a core that the busiest worker used. `c` and `c_held` are those
    of the level furthest from its C. `other_clients` counts requests in flight on the server beyond our `in_flight`,
    `other_requests` those that finished beyond our `own_requests`. `client_tokens` and `server_tokens` count the output
    tokens of the same requests; of cancelled ones, `uncertain_tokens` may have been on their way to the client, and
    `uncounted_tokens` may not be in the server's count; `miscounted` is the share of answers with fewer tokens than
    chunks; `usage_apart` is how far the usage of the few answers that were `usage_checked` is from the tokens of their
    text, as a share. `first_coalesced` is the share of answers whose first token has the timestamp of a later one,
    `first_error` by how much mean TTFT or time per token may be off for that, as a share.
    `closed_connections`: the server closes connections after each response, although it promises to keep them.
    `engine_ratio` is the engine's decode rate over the client's. `cached_share` is that of the prompt tokens,
    `unique_cached` that of answers of whose prompts the part that no other prompt has was in the prefix cache.
    `throttled` is a share of a level's time, `clock_spread` (highest − lowest) / highest clock of a busy GPU during a
    level, and `clock_steps` how often the client's clock was set. `clock_bound_s` is the largest error of the clock
    offset between hosts. `frozen`, `all_waiting` and `no_cpu` count the silences of levels, `silence_s` is the longest
    of the first two.
    `several_servers`: the metrics come from different servers in turn, and their counters mean nothing. `host` is how
    busy the host was in the busiest level.
    """

    lag_p99_s: float | None = None
    tpot_s: float | None = None
    kernel_stamps: bool | None = None
    turnaround: float | None = None
    send_delay: float | None = None
    worker_cpu: float | None = None
    load: str | None = None
    c: int | None = None
    c_held: float | None = None
    in_flight: float | None = None
    other_clients: float | None = None
    other_requests: float | None = None
    own_requests: int | None = None
    idle_before: bool | None = None
    token_sources: tuple[str, ...] = ()
    client_tokens: float | None = None
    server_tokens: float | None = None
    uncertain_tokens: float | None = None
    uncounted_tokens: float | None = None
    miscounted: float | None = None
    usage_apart: float | None = None
    usage_checked: int | None = None
    engine_ratio: float | None = None
    cache: CachePromise | None = None
    unique_cached: float | None = None
    cached_share: float | None = None
    preemptions: float | None = None
    throttled: float | None = None
    throttle: tuple[str, ...] = ()
    host: HostUse | None = None
    clock_spread: float | None = None
    clock_steps: int | None = None
    clock_bound_s: float | None = None
    coalesced_chunks: float | None = None
    first_coalesced: float | None = None
    first_error: float | None = None
    frozen: int | None = None
    all_waiting: int | None = None
    no_cpu: int | None = None
    silence_s: float | None = None
    closed_connections: bool | None = None
    restarted: bool = False
    several_servers: bool = False


class QualityLine(Stored, frozen=True, kw_only=True):
    """One line of measurement quality: the value, and in one sentence what it means for the figures.

    A note is worth knowing, and does not affect the answer. `wrong` is a failed check of `swarmtui doctor`. `inexact`
    are the figures that may be wrong: a line is doubtful if the answer is made of one of them, else it is a note.
    `programs` are those that made the host busy. `early`: the session runs, and too little is measured to judge it.
    """

    code: str
    name: str
    state: Literal["ok", "note", "doubtful", "wrong"]
    value: str
    sentence: str
    inexact: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    early: bool = False


class HistoryPoint(Stored, frozen=True, kw_only=True, array_like=True):
    """One point of the history that UIs draw, four per second."""

    t_ns: int
    c: int
    in_flight: int
    waiting: int
    out_tps: float | None
    ttft_s: float | None
    errors: int
    server_waiting: float | None = None
    per_stream_tps: float | None = None


_MAX_POINTS = 1_200


def thinned(history: list[HistoryPoint]) -> list[HistoryPoint]:
    """Return a history without every second point once it is full."""
    return history[::2] if len(history) > _MAX_POINTS else history
