"""The sentences of an answer: for each row of the table, the facts with which it is said, and its words."""

from __future__ import annotations

from typing import Any

import msgspec

from swarmtui.analysis.answer.facts import Missed
from swarmtui.analysis.answer.slots_change import SlotsChange
from swarmtui.analysis.compare.change import LeftOutFlag, ServerChange
from swarmtui.analysis.compare.power import PowerEffect
from swarmtui.analysis.compare.verdicts import Interval
from swarmtui.model.answer import Answer, AnswerPoint, AnswerSentence, SlotsForecast

SLO = "a first token within 2 s and 20 tok/s each, for 90 % of requests"
SLOW_START = Missed(
    text="TTFT p90 ≤ 2 s", required=0.9, good=20, n=40, figure="ttft", limit=2.0, percentile=90, value=2.41, median=2.1
)
FEW = msgspec.structs.replace(SLOW_START, good=11, n=20, value=None)
SLOW_STREAM = Missed(
    text="≥ 20 tok/s per user (p10)", required=0.9, good=11, n=20, figure="stream", limit=20.0, median=19.3
)
# A level whose answers are too slow, and what binds it.
LATE_JOB = Missed(text="time per job p90 ≤ 120 s", required=0.9, good=11, n=20, figure="job", limit=120.0,
                  percentile=90, median=150.0, counted="jobs")  # fmt: skip
HARDWARE: dict[str, Any] = {"binds_c": 20, "because": "15.3 GB per step, 71 % of the memory bandwidth"}
JOINT = Missed(text="TTFT ≤ 500 ms and TPOT ≤ 50 ms for 95 % of requests", required=0.95, good=12, n=20)

MEASURED: dict[str, Any] = {"levels": 4, "lowest_c": 1, "highest_c": 32}
SEARCHED = MEASURED | {"slo": SLO, "searched": True, "agents": 18, "low": 17, "high": 19, "sure": 0.8, "c": 20}
BUSY: dict[str, Any] = {"high": None, "doubts": ("the host was busy",), "disturbed": "the host was busy"}
AT_SLOTS = SEARCHED | {"missed": SLOW_START, "slots": 16, "running": 16.0, "queued": 3.4}
SWEEP = MEASURED | {"best_c": 4, "best_tps": 283.0, "grows": False}
# All slots are taken at 800 tok/s; with twice as many, agents share them, as tok/s did not grow before, either.
FULL: dict[str, Any] = {"full_tps": 800.0, "full_stream": 215.0, "shared_stream": 107.5}
FLAT: dict[str, Any] = {"flat": (2, 790.0, 4, 800.0)}
CLIFF = SWEEP | {"c": 8, "c_before": 4, "gain": 0.01, "wait": 9.0, "slots": 4}


def since(**found: Any) -> dict[str, Any]:
    """A change from two slots to four, after searches of a minute each."""
    known: dict[str, Any] = {
        "before": "--parallel 2",
        "after": "--parallel 4",
        "had": (12, 16),
        "search_s": 60.0,
    }
    return {"change": ServerChange(**(known | found))}


NO_CONTEXT: dict[str, Any] = {"left_out": LeftOutFlag(flag="--ctx-size 32768", context=(8192, 4096))}


def limit(tps: float, energy: float, *, sure: bool = True) -> PowerEffect:
    """The effect of 280 W, known to half a percent."""
    ranges = [
        Interval(middle=value, low=value - 0.005, high=value + 0.005) if sure else None for value in (tps, energy)
    ]
    return PowerEffect(
        watts=280, base_w=700, passes=3, tps=tps, energy=energy, tps_range=ranges[0], energy_range=ranges[1]
    )


def slots_change(was: int, now: int, before: tuple[int, float], after: tuple[int, float]) -> dict[str, Any]:
    """The slots of a server changed: before and after, the agents and the tok/s in total with as many."""

    def found(agents: int, tps: float, slots: int) -> Answer:
        said = AnswerSentence(code="capacity", sentence="")
        at = AnswerPoint(c=agents, ttft_s=1.0, per_stream_tps=tps / slots, out_tps=tps, half_width=0.02)
        return Answer(headline=said, limit=said, at_capacity=at)

    change = SlotsChange(was, now, found(*before, was), found(*after, now), (before[0], after[0]), f"--parallel {was}")
    return {"slots_change": change}


TRIED = SlotsForecast(
    setting="--parallel 16", slots=16, agents_low=None, agents_high=14, each_tps=104.0, shared_tps=52.0
)

# For each row of the table: the facts with which it is said, and its words.
CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("headline", "nothing_measured", {}, "nothing was measured"),
    ("headline", "open_loop", {"levels": 2, "open_loop": "keeps up with 8 requests/s"}, "keeps up with 8 requests/s"),
    ("headline", "no_agent", SEARCHED | {"agents": 0, "low": 0, "high": 0},
     f"not even one agent with {SLO} (80 % sure)"),
    ("headline", "fewer_agents", SEARCHED | {"agents": 0, "low": 0, "high": 3, "lowest_c": 4},
     f"fewer than 4 agents, the fewest that were tried, with {SLO} (80 % sure)"),
    ("headline", "capacity", SEARCHED, f"18 agents (17–19) with {SLO} (80 % sure)"),
    ("headline", "capacity", SEARCHED | {"doubts": ("tokens were estimated",)}, f"18 agents (17–19) with {SLO}"),
    ("headline", "capacity_or_more", SEARCHED | BUSY,
     f"18 agents (17 or more) with {SLO}"),
    ("headline", "capacity_or_more", SEARCHED | BUSY | {"low": 18},
     f"18 agents or more with {SLO}"),
    ("headline", "capacity_or_more", SEARCHED | BUSY | {"low": 0},
     f"18 agents, perhaps fewer or more, with {SLO}"),
    ("headline", "agents_not_known", SEARCHED | BUSY | {"agents": 0, "low": 0},
     f"how many agents have {SLO} is not known: no level is decided"),
    ("headline", "agents_not_known", SEARCHED | {"agents": 0, "low": 0, "high": None},
     f"how many agents have {SLO} is not known: no level is decided"),
    ("headline", "agents_not_known", SEARCHED | BUSY | {"agents": 0, "low": 0, "high": 3},
     f"how many agents have {SLO} is not known"),
    ("headline", "capacity_at_least", SEARCHED | BUSY | {"c": None, "low": 0},
     f"18 agents, perhaps fewer or more, with {SLO}; no level missed it"),
    ("headline", "capacity", SEARCHED | {"low": 0, "high": 18}, f"18 agents, perhaps fewer, with {SLO} (80 % sure)"),
    ("headline", "capacity", SEARCHED | {"low": 0}, f"at most 19 agents, most likely 18, with {SLO} (80 % sure)"),
    ("headline", "capacity", SEARCHED | {"low": 9, "high": 30},
     f"9 to 30 agents, most likely 18, with {SLO} (80 % sure)"),
    ("headline", "no_text", SEARCHED | {"agents": 0, "low": 0, "textless": 5},
     f"how many agents have {SLO} is not known: no answer had text"),
    ("limit", "no_text", SEARCHED | {"textless": 5}, "the model ended all 5 answers at once, without text"),
    ("next", "no_text", SEARCHED | {"textless": 5},
     "find out why answers are empty: the chat template, the stop words or the model may end them at once"),
    ("headline", "capacity", SEARCHED | {"low": 18, "high": None}, f"18 agents or more with {SLO} (80 % sure)"),
    ("headline", "capacity", SEARCHED | {"low": 0, "high": None},
     f"18 agents, perhaps fewer or more, with {SLO}"),
    ("headline", "capacity", SEARCHED | {"low": 18, "high": 18}, f"18 agents with {SLO} (80 % sure)"),
    ("headline", "capacity_at_least", SEARCHED | {"c": None, "high": None, "low": 18},
     f"at least 18 agents with {SLO} (80 % sure); no level missed it"),
    ("headline", "capacity_at_least", SEARCHED | {"c": None, "high": None, "low": 12},
     f"18 agents (12 or more) with {SLO} (80 % sure); no level missed it"),
    ("headline", "single_level", SWEEP | {"levels": 1}, "283 tok/s with 4 agents, the only level"),
    ("headline", "still_growing", SWEEP | {"grows": True}, "4 agents or more: 283 tok/s in total, and it still grew"),
    ("headline", "best_level", SWEEP, "best with 4 agents: 283 tok/s in total"),
    ("headline", "no_throughput", MEASURED, "no level has a throughput"),
    ("missed", "missed_errors", AT_SLOTS | {"failed": 15, "requests": 40, "error": "12 http_503, 3 reset"},
     "15 of 40 requests failed (12 http_503, 3 reset)"),
    ("missed", "missed_empty", AT_SLOTS | {"empty": 15, "requests": 40}, "15 of 40 answers had no text"),
    ("missed", "missed_together", AT_SLOTS | {"missed": msgspec.structs.replace(SLOW_START, good=38)},
     "and the levels beside it, counted together, too few requests kept it"),
    ("missed", "missed_value", AT_SLOTS, "the first token took 2.4 s (p90)"),
    ("missed", "missed_value", AT_SLOTS | {"missed": msgspec.structs.replace(SLOW_START, value=2.001)},
     "the first token took just above 2 s (p90)"),
    ("missed", "missed_count", AT_SLOTS | {"missed": FEW},
     "9 of 20 first tokens took more than 2 s"),
    ("missed", "missed_count", AT_SLOTS | {"missed": msgspec.structs.replace(FEW, good=1, n=7)},
     "6 of 7 first tokens took more than 2 s"),
    ("missed", "missed_count", AT_SLOTS | {"missed": SLOW_STREAM},
     "9 of 20 answers came at less than 20 tok/s"),
    ("missed", "missed_count", AT_SLOTS | {"missed": LATE_JOB},
     "a job took more than 120 s in 9 of 20 jobs"),
    ("missed", "missed_joint", AT_SLOTS | {"missed": JOINT},
     "12 of 20 requests met TTFT ≤ 500 ms and TPOT ≤ 50 ms for 95 % of requests"),
    ("missed", "cliff", CLIFF, "output changes by +1 %, and the first token takes 9 times as long"),
    ("limit", "failures", SWEEP | {"failing": (4, 3, 10, "3 reset"), "grows": True},
     "with 4 agents 3 of 10 requests failed (3 reset)"),
    ("next", "failures", SWEEP | {"failing": (4, 3, 10, "3 reset")},
     "find out why requests fail, in the log of the server"),
    ("headline", "best_level", SWEEP | {"failing": (4, 3, 10, "reset"), "grows": True},
     "best with 4 agents: 283 tok/s in total"),
    ("next", "more_slots_agents",
     AT_SLOTS | {"more_slots": "slots=16", "more_at_once": 32, "more_agents": 40, "replicas": 2},
     "slots=16 on each of 2 replicas: 32 to 40 agents (prediction)"),
    ("limit", "server_gone", SEARCHED | {"c": None, "gone_c": 32},
     "not known: the server went away or restarted with 32 agents"),
    ("limit", "not_reached", SEARCHED | {"c": None}, "not reached: no level had more than 32 agents"),
    ("limit", "not_reached", SWEEP | {"grows": True}, "not reached: no level had more than 32 agents"),
    ("limit", "errors", AT_SLOTS | {"failed": 15, "requests": 40, "error": "http_503"},
     "the log of the server may say why"),
    ("limit", "empty_answers", AT_SLOTS | {"empty": 15, "requests": 40},
     "the model ended them at once, so that this number says little about the server"),
    ("limit", "evictions", AT_SLOTS | {"hits": ("0.94", "0.71")},
     "prompts are evicted from the KV cache, hit rate 0.94 → 0.71"),
    ("limit", "preemptions", AT_SLOTS | {"preemptions": 12.0}, "the KV cache is too small, 12 preemptions"),
    ("limit", "slots", AT_SLOTS, "all 16 slots are taken"),
    ("limit", "slots", AT_SLOTS | {"kv_use": 0.31}, "all 16 slots are taken; the KV cache has room (31 % used)"),
    ("limit", "slots", AT_SLOTS | {"kv_fits": 16}, "all 16 slots are taken; the KV cache has room"),
    ("limit", "slots", AT_SLOTS | {"kv_fits": 15}, "all 16 slots are taken"),
    ("limit", "slots", CLIFF | {"inferred": True}, "all 4 slots, as seen from the client, are taken"),
    ("limit", "slots", AT_SLOTS | {"slots": 1, "running": None}, "the only slot is taken"),
    ("limit", "slots", AT_SLOTS | {"slots": 2, "running": None}, "both slots are taken"),
    ("limit", "kv_cache", AT_SLOTS | {"kv_use": 0.97, "running": 9.0}, "the KV cache is 97 % full"),
    ("limit", "queue", AT_SLOTS | {"slots": None}, "the queue of the server has 3.4 waiting requests on average"),
    ("limit", "prefill", AT_SLOTS | {"slots": 64, "queued": 0.0, "ttft_s": 2.2, "prefill_s": 2.0},
     "on average 2.0 s of 2.2 s go into reading the prompt"),
    ("limit", "share_of_time", SEARCHED | {"missed": LATE_JOB, "longest_part": ("waiting for tools", "62 %", "job")},
     "waiting for tools takes 62 % of the time of a job"),
    ("limit", "client", SEARCHED | {"client": "client CPU 98 %"}, "the client may be too slow (client CPU 98 %)"),
    ("limit", "host", SEARCHED | {"host": "the host was busy: 90 %", "missed": SLOW_STREAM, "host_share": 0.1},
     "the host was busy: 90 %"),
    ("limit", "prefill_share", SEARCHED | HARDWARE | {"binds": "prefill", "missed": SLOW_STREAM, "because": "62 %"},
     "reading prompts takes most of the time: 62 %"),
    ("limit", "gateway", SEARCHED | HARDWARE | {"binds": "client", "missed": SLOW_START, "because": "1 of 2 s"},
     "the time is spent between client and server: 1 of 2 s"),
    ("limit", "power", SEARCHED | HARDWARE | {"binds": "power", "missed": SLOW_STREAM, "because": "34 % of the time"},
     "the GPUs lower their clocks: 34 % of the time"),
    ("limit", "server_cpu",
     SEARCHED | HARDWARE | {"binds": "server_cpu", "missed": SLOW_STREAM, "because": "they are busy 57 % of the time"},
     "the GPUs wait for what the server does on the CPU: they are busy 57 % of the time"),
    ("limit", "launch_overhead",
     SEARCHED | HARDWARE | {"binds": "launch_overhead", "missed": SLOW_STREAM, "because": "3 of 5 ms"},
     "most of a step is neither reading nor computing: 3 of 5 ms"),
    ("limit", "compute", SEARCHED | HARDWARE | {"binds": "compute", "missed": SLOW_STREAM, "because": "70 %"},
     "the GPUs compute all the time: 70 %"),
    ("limit", "bandwidth", SEARCHED | HARDWARE | {"binds": "bandwidth", "missed": SLOW_STREAM},
     "reading memory limits it: 15.3 GB per step, 71 % of the memory bandwidth"),
    ("limit", "bandwidth", SWEEP | HARDWARE | {"binds": "bandwidth", "binds_c": 4},
     "reading memory limits it with 4 agents: 15.3 GB per step, 71 % of the memory bandwidth"),
    ("limit", "throughput", AT_SLOTS | FLAT | {"missed": SLOW_STREAM},
     "agents share an output that hardly grows any more (790 tok/s with 2 agents, 800 with 4)"),
    ("limit", "server_changed", SWEEP | {"server_changed": "--parallel 2 → 4", "failing": (1, 2, 5, "reset")},
     "not known: the server came back with other flags, which ended the run"),
    ("limit", "more_than_slots", SWEEP | {"slots": 4, "queue_evidence": "C=8 compared with C=4: +2 %"},
     "requests wait for a slot beyond 4 agents"),
    ("limit", "more_than_slots", CLIFF | {"c": 5, "queued": 0.1, "queue_evidence": "C=5: +0 %", "inferred": True},
     "requests wait for a slot beyond 4 agents, as seen from the client"),
    ("limit", "not_known", SEARCHED | HARDWARE | {"binds": "bandwidth", "missed": SLOW_START},
     "what limits it is not known"),
    ("limit", "not_known", AT_SLOTS | {"missed": SLOW_STREAM}, "what limits it is not known"),
    ("next", "quiet_host", SEARCHED | {"host": "host CPU 90 %"}, "measure again when the host is quiet"),
    ("next", "measure_again", SEARCHED | {"disturbed": "the server froze"}, "measure again"),
    ("next", "one_agent_misses", SEARCHED | {"agents": 0, "low": 0, "high": 0, "one_tps": 22.04},
     "try a looser SLO, or a smaller model: one agent has 22.0 tok/s"),
    ("next", "server_changed", {"server_changed": "after 3 s: --parallel 2 → 4"},
     "repeat the plan: the server came back with other flags"),
    ("next", "client_limit", {"client": "client CPU 98 %", "highest_c": 1},
     "the client may be the bottleneck: use other cores before changing flags"),
    ("next", "client_limit", {"client": "client CPU 98 %", "highest_c": 4},
     "the client may be the bottleneck: use other cores or fewer streams before changing flags"),
    ("next", "prefix_cache", {"cached": "40 % cached"},
     "prefix cache hits bring the first token sooner: use another --seed, or disable the cache for the measurement"),
    ("next", "errors", AT_SLOTS | {"failed": 15, "requests": 40, "error": "http_503"},
     "find out why requests fail, in the log of the server"),
    ("next", "empty_answers", AT_SLOTS | {"empty": 15, "requests": 40},
     "find out why answers are empty: the chat template, the stop words or the model may end them at once"),
    ("next", "more_slots_agents",
     AT_SLOTS | {"more_slots": "--max-num-seqs 24", "more_at_once": 24, "more_agents": 30, "rate_limit": 20.0},
     "--max-num-seqs 24: 24 to 30 agents, then 20 tok/s each is the limit (prediction)"),
    ("next", "more_slots_agents",
     AT_SLOTS | {"more_slots": "--max-num-seqs 18", "more_at_once": 18, "more_agents": 20},
     "--max-num-seqs 18: up to 20 agents (prediction)"),
    ("next", "more_slots_agents",
     AT_SLOTS | FULL | FLAT | {"more_slots": "--parallel 24", "more_at_once": 24, "more_agents": 30},
     "--parallel 24: 24 to 30 agents, each writes about 108 tok/s instead of 215 (prediction)"),
    ("next", "more_slots_agents",
     AT_SLOTS | FULL | {"more_slots": "--parallel 24", "more_at_once": 24, "more_agents": 30, "more_stream": 163.0},
     "--parallel 24: 24 to 30 agents, each writes about 163 tok/s instead of 215 (prediction)"),
    ("next", "more_slots_tps", CLIFF | FULL | {"more_slots": "--parallel 8", "more_tps": 0.26, "more_stream": 135.0},
     "--parallel 8: about 26 % more tok/s in total, each writes about 135 tok/s instead of 215 (prediction), as a step "
     "serves more requests"),
    ("next", "more_slots_tps", CLIFF | {"more_slots": "--parallel 8", "more_tps": 0.26},
     "--parallel 8: about 26 % more tok/s in total (prediction), as a step serves more requests"),
    ("next", "more_slots_agents",
     AT_SLOTS | {"more_slots": "--parallel 24", "more_at_once": 24, "more_agents": 30, "kv_limit": True},
     "--parallel 24 (as many as the KV cache holds): 24 to 30 agents (prediction)"),
    ("next", "more_slots", AT_SLOTS | FULL | FLAT | {"more_slots": "slots=220", "kv_use": 0.3, "rate_limit": 20.0},
     "slots=220 (the most with 20 tok/s each): more agents start at once, each writes about 108 tok/s instead of 215; "
     "how many keep the SLO then is not known"),
    ("next", "more_slots", AT_SLOTS | FULL | FLAT | {"more_slots": "slots=235", "kv_use": 0.65, "kv_limit": True},
     "slots=235 (as many as the KV cache holds): more agents start at once, each writes about 108 tok/s instead of "
     "215; how many keep the SLO then is not known"),
    ("next", "more_slots", CLIFF | {"more_slots": "--parallel 8"},
     "--parallel 8: more agents start at once if memory allows it"),
    ("next", "more_slots", AT_SLOTS | {"more_slots": "--parallel 8"},
     "--parallel 8: more agents start at once if memory allows it; how many keep the SLO then is not known"),
    ("next", "more_slots", AT_SLOTS | FULL | {"more_slots": "--parallel 8", "kv_fits": 40},
     "--parallel 8: more agents start at once, each writes about 108 tok/s instead of 215 if the total does not grow; "
     "how many keep the SLO then is not known"),
    ("next", "more_slots", AT_SLOTS | FULL | FLAT | {"more_slots": "--parallel 8", "kv_use": 0.3},
     "--parallel 8: more agents start at once, each writes about 108 tok/s instead of 215; how many keep the SLO then "
     "is not known"),
    ("next", "more_slots",
     AT_SLOTS | FULL | {"more_slots": "--parallel 8", "more_at_once": 8, "kv_fits": 40, "shared_agents": 24},
     "--parallel 8: up to 24 agents, each writes about 108 tok/s instead of 215 (prediction, if the total does not "
     "grow)"),
    ("next", "more_slots",
     AT_SLOTS | BUSY | FULL | {"more_slots": "--parallel 8", "kv_use": 0.3, "more_stream": 108.0},
     "--parallel 8: more agents start at once, each writes about 108 tok/s instead of 215 if the total does not grow; "
     "how many keep the SLO then is not known"),
    ("next", "queue", AT_SLOTS,
     "beyond C=16 requests only queue: send fewer at once, or give the server more slots"),
    ("next", "queue", AT_SLOTS | {"kv_fits": 12},
     "beyond C=16 requests only queue: send fewer at once, or give the server more slots and a KV cache for more than "
     "12 agents"),
    ("next", "queue", CLIFF | FLAT | {"more_slots": "--parallel 8", "more_tps": 0.0},
     "beyond C=4 requests only queue, and the server gives about 800 tok/s in total: send fewer at once"),
    ("next", "throughput", AT_SLOTS | FLAT | {"missed": SLOW_STREAM},
     "a smaller model, or weights of fewer bits: the server gives about 800 tok/s in total"),
    ("next", "throughput", AT_SLOTS | FLAT | {"rate_limit": 20.0},
     "a smaller model, or weights of fewer bits: the server gives about 800 tok/s in total, and with more "
     "slots agents would get less than 20 each"),
    ("next", "narrow_kv",
     {"narrow_kv": 0.31, "narrow_kv_flag": "--kv-cache-dtype fp8", "kv_size": "KV cache of 65,536 tokens with 16 bits"},
     "--kv-cache-dtype fp8: +31 % agents before the KV cache is full, as a token takes less of it (prediction)"),
    ("next", "cuda_graphs", {"eager": "--enforce-eager", "because": "3 of 5 ms"},
     "without --enforce-eager: CUDA graphs launch a step at once"),
    ("next", "smaller_weights", HARDWARE | {"smaller_weights": 0.48},
     "weights of 8 bits: about 48 % more tok/s with 20 agents, as a step reads less memory (prediction)"),
    ("next", "shorter_prompts", {"c": 20, "binds": "prefill", "because": "prompts take 80 % of the time"},
     "shorter prompts, or more of them from the prefix cache"),
    ("next", "preemptions", {"preempted": (8, 12.0, 0.99)},
     "the KV cache is too small for this many requests: use fewer slots, a shorter context or an fp8 KV cache, or give "
     "it more memory"),
    ("next", "kv_cache", {"full_kv": (8, 0.97)},
     "the KV cache is full: more streams will queue, or cause preemptions"),
    ("next", "power_limit", {"power": "C=8: clocks lowered 62 % of the time"},
     "the GPUs run at their power limit: raising it gives more tok/s, lowering it may improve tokens/J"),
    ("next", "speculative_decoding", {"drafts": ("2,4", "C=2: 30 % accepted")},
     "few draft tokens are accepted at C=2,4: draft fewer, or none"),
    ("next", "fewer_slots", {"enough_slots": 7, "step_law": "a step takes 2 + 5·b ms"},
     "7 slots would give almost the same tok/s in total: more of them only make each agent slower"),
    ("next", "tensor_parallel", {"heads": (3, 40)},
     "TP=3 does not divide 40 heads: the server rejects it, or leaves GPUs idle"),
    ("next", "higher_levels", SWEEP | {"grows": True}, "more than 32 agents: tok/s still grew"),
    ("next", "more_agents", SEARCHED | {"searched": False, "c": None, "high": None},
     "more than 32 agents: no level missed the SLO"),
    ("next", "longer_search", SEARCHED, "a surer search (99 %, some minutes) narrows the number down"),
    ("next", "unsure_search", SEARCHED | {"low": 9, "high": 22},
     "a surer search first (some minutes), as the number is not sure"),
    ("next", "unsure_search", SEARCHED | {"agents": 0, "low": 0, "high": None},
     "a surer search first (some minutes), as the number is not sure"),
    ("next", "search_capacity", CLIFF, f"how many agents have {SLO}"),
    ("power", "power_passes", {"power_effect": limit(-0.01, -0.2, sure=False)},
     "280 W changes tok/s by −1.0 % and J/token by −20 % so far, compared with 700 W; how sure that is "
     "needs 3 passes"),
    ("power", "power_free", {"power_effect": limit(-0.001, -0.2)},
     "280 W saves 20 % of the energy per token (19.5 to 20.5 %), compared with 700 W; no change of tok/s is seen "
     "(−0.6 to 0.4 %)"),
    ("power", "power_saves", {"power_effect": limit(-0.01, -0.2)},
     "280 W costs 1 % of tok/s (0.5 to 1.5 %) and saves 20 % of the energy per token (19.5 to 20.5 %), compared with "
     "700 W"),
    ("power", "power_not_worth", {"power_effect": limit(-0.3, -0.2)},
     "no lower limit surely saves energy at a cost of at most 5 % of tok/s; 280 W, the lowest, changes tok/s by "
     "−30 % (−30.5 to −29.5 %) and J/token by −20 % (−20.5 to −19.5 %)"),
    ("change", "left_out_flag", NO_CONTEXT | since(repeat_after=True, busy=True),
     "add the advised --ctx-size 32768 for 8,192 tokens of context each again, not 4,096 (for longer prompts, not for "
     "more agents)"),
    ("change", "left_out_flag", NO_CONTEXT,
     "add the advised --ctx-size 32768 for 8,192 tokens of context each again, not 4,096 (for longer prompts, not for "
     "more agents)"),
    ("surer", "surer_each", NO_CONTEXT | since(longer_command="swarmtui capacity"),
     "a surer search of each setting decides (some minutes each)"),
    ("change", "repeat_run", since(repeat_after=True, busy=True),
     "repeat the later run when the host is quiet (about 60 s)"),
    ("change", "repeat_run", since(repeat_before=True, repeat_after=True, decided=True),
     "repeat the later run (about 60 s)"),
    ("change", "repeat_earlier", since(repeat_before=True, busy=True),
     "repeat the earlier run with --parallel 2 when the host is quiet (about 60 s)"),
    ("change", "repeat_older", since(repeat_before=True, embedded=True),
     "repeat the earlier run with --parallel 2 (about 60 s)"),
    ("change", "repeat_older", since(repeat_before=True, before=""), "repeat the earlier run (about 60 s)"),
    ("change", "go_back", since(decided=True, worse=True, had=(13, 8)),
     "go back to --parallel 2: it had 13 agents instead of 8"),
    ("change", "keep_context", NO_CONTEXT | since(same=True, had=(12, 12), context=(8192, 4096)),
     "go back to --parallel 2: as many agents, with 8,192 tokens of context each instead of 4,096"),
    ("change", "meanwhile", since(answers_s=(1.37, 1.9), longer_command="swarmtui capacity"),
     "a surer search of each setting decides (some minutes each); until then use --parallel 2, as a whole answer takes "
     "1.37 s instead of 1.90 s"),
    ("change", "meanwhile", since(answers_s=(1.37, 1.9), longer_command="swarmtui capacity", before="", after=""),
     "a surer search of each setting decides (some minutes each); until then use the server as it was, as a whole "
     "answer takes 1.37 s instead of 1.90 s"),
    ("change", "faster_before", since(answers_s=(1.37, 1.9), same=True),
     "go back to --parallel 2, as a whole answer takes 1.37 s instead of 1.90 s: no difference in agents shows"),
    ("change", "faster_now", since(answers_s=(1.9, 1.37)),
     "keep --parallel 4, as a whole answer takes 1.37 s instead of 1.90 s: no difference in agents shows"),
    ("change", "longer_searches", since(longer_command="swarmtui capacity"),
     "a surer search of this server, then of one with --parallel 2, may tell them apart (some minutes "
     "each)"),
    ("change", "longer_searches", since(longer_command="swarmtui capacity", before=""),
     "a surer search of each may tell them apart (some minutes each)"),
    ("change", "no_difference", since(same=True, had=(12, 12)),
     "keep --parallel 4 or go back to --parallel 2: no difference in agents shows"),
    ("change", "no_difference", since(had=(12, 13)),
     "keep --parallel 4 or go back to --parallel 2: no difference in agents shows"),
    ("change", "no_difference", since(had=(12, 13), before="", after=""),
     "keep the change or take it back: no difference in agents shows"),
    ("learned", "slots_back", slots_change(8, 4, (9, 802.0), (5, 805.0)) | {"tried": TRIED},
     "go back to --parallel 8: it had 9 agents and 802 tok/s in total, 100 tok/s each while it writes, instead of 201"),
    ("learned", "slots_shared", slots_change(4, 8, (5, 805.0), (9, 802.0)) | {"tried": TRIED},
     "--parallel 16: up to 14 agents, each writes about 52 tok/s instead of 104 (prediction), as 8 slots gave no more "
     "output than 4 (805 tok/s with 5 agents, 802 with 9)"),
    ("learned", "slots_tried", slots_change(4, 8, (5, 805.0), (5, 802.0)) | {"tried": TRIED},
     "8 slots gave no more output than 4 (805 → 802 tok/s) and no more agents (5 → 5): more slots do not help"),
    ("learned", "slots_tried", slots_change(4, 8, (5, 805.0), (5, 1000.0)) | {"tried": TRIED},
     "8 slots had no more agents than 4 (5 → 5): more slots do not help so far"),
    ("learned", "throughput", slots_change(4, 8, (5, 805.0), (5, 802.0)),
     "a smaller model, or weights of fewer bits: the server gives about 802 tok/s in total"),
]  # fmt: skip
