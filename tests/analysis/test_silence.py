"""A silence of all streams and the prompt of another request, distinguished by the gaps and prompts of a session."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swarmtui.analysis.levels.figures import LevelReading, level_figures
from swarmtui.analysis.quality.facts import level_facts
from swarmtui.analysis.quality.judge import judge
from swarmtui.analysis.quality.silence import PrefillTimes
from swarmtui.model.record import CANCELLED, Record
from swarmtui.model.session import Level
from swarmtui.model.telemetry import HostLoad, ProgramTimes
from tests.analysis.record_builders import BOOT_NS, MS, end, request, stage
from tests.seeds.virtual_session import Freeze, simulate_sweep

STEP, TTFT, PROMPT = 20.0, 200.0, 1000  # ms, ms, tokens


def unchanged(at: float) -> float:
    return at


def stopped(since: float, for_ms: float) -> Callable[[float], float]:
    """Nothing happens for a time: what would happen after `since` happens that much later."""
    return lambda at: at + for_ms if at > since else at


def closed_loop(c: int, **options: Any) -> Level:
    (level,) = level_figures(requests(c, **options), [stage(c=c)], [end(at=1e6)])
    return level


def requests(
    c: int,
    *,
    warp: Callable[[float], float] = unchanged,
    step: float = STEP,
    prompts: dict[int, int] | None = None,
    seed: int = 1,
) -> list[Record]:
    """Return those of C streams, each of which sends a pre-roll, four measured requests and a filler."""
    random = Random(seed)
    records: list[Record] = []
    for agent in range(c):
        at = 50.0 * agent
        for number, phase in enumerate(("preroll", *["level"] * 4, "filler")):
            first = at + TTFT * random.uniform(0.8, 1.2)
            chunks = [first]
            for _ in range(random.randint(30, 120)):
                chunks.append(chunks[-1] + step * random.uniform(0.8, 1.3))
            task = 10 * agent + number
            cut: dict[str, Any] = (
                {"error": CANCELLED, "tokens_out": None, "token_source": None} if phase == "filler" else {}
            )
            records.append(
                request(
                    warp(at),
                    [warp(t) for t in chunks],
                    task=task,
                    agent=agent,
                    c=c,
                    phase=phase,
                    **{"tokens_in": (prompts or {}).get(task, PROMPT)} | cut,
                )
            )
            at = chunks[-1] + 0.1
    return records


def sent_ms(records: list[Record], task: int) -> float:
    return next(((r.t_sent_ns or 0) - BOOT_NS) / MS for r in records if r.task == task)


def kinds(level: Level) -> list[str]:
    assert {flag.code for flag in level.flags if flag.code in ("frozen", "all_waiting", "no_cpu")} == {
        silence.kind for silence in level.silences
    }
    return [silence.kind for silence in level.silences]


@given(c=st.integers(1, 16), seed=st.integers(0, 10**6), step=st.sampled_from([2.0, 20.0, 400.0]))
def test_an_ordinary_level_has_no_silence(c: int, seed: int, step: float) -> None:
    assert kinds(closed_loop(c, seed=seed, step=step)) == []


@given(
    c=st.integers(1, 16),
    seed=st.integers(0, 10**6),
    since=st.floats(4000.0, 6000.0),
    for_ms=st.floats(1500.0, 20000.0),
)
def test_a_stop_of_the_server_is_one_silence_of_its_length(c: int, seed: int, since: float, for_ms: float) -> None:
    measured = [record for record in requests(c, seed=seed) if record.phase == "level"]
    assume(since * MS < max(record.left_ns for record in measured) - BOOT_NS)  # one stream may have ended by then
    level = closed_loop(c, warp=stopped(since, for_ms), seed=seed)
    (silence,) = level.silences
    assert kinds(level) in (["frozen"], ["all_waiting"])
    assert for_ms / 1e3 <= silence.seconds <= for_ms / 1e3 + 0.3
    assert abs(silence.t_ns - (BOOT_NS + since * MS)) <= 300 * MS


def test_streams_that_were_being_answered_are_frozen() -> None:
    level = closed_loop(4, warp=stopped(5000.0, 3000.0))
    assert kinds(level) == ["frozen"]
    (flag,) = [flag for flag in level.flags if flag.code == "frozen"]
    assert flag.text.startswith("no stream received anything for 3 s")


@pytest.mark.parametrize(
    ("waited", "stolen", "others", "kind"),
    [
        pytest.param((0.0, 0.0), 0.0, None, "frozen", id="a quiet host"),
        pytest.param((0.9, 0.9), 0.0, None, "no_cpu", id="the server was ready to run, and did not"),
        pytest.param((0.9, 0.9), 0.0, 1.0, "no_cpu", id="as another program ran"),
        pytest.param((0.9, 0.9), 0.0, 0.0, "frozen", id="the server itself was busy, with other things than answers"),
        pytest.param((0.9, 0.0), 0.0, 1.0, "frozen", id="the host was busy, but the server did not want to run"),
        pytest.param((0.0, 0.0), 0.4, None, "no_cpu", id="the hypervisor ran other machines"),
    ],
)
def test_a_host_without_cpu_time_explains_a_silence(
    waited: tuple[float, float], stolen: float, others: float | None, kind: str
) -> None:
    """`waited` are seconds per second before the silence and during it, `others` is how many cores others used."""
    readings, waited_s = [], 0.0
    for at in range(2000, 10001, 500):
        waited_s += 0.5 * waited[5000 < at <= 8000]
        host = HostLoad(
            t_ns=BOOT_NS + at * MS,
            waited_ns=round(1e9 * waited_s),
            steal_ticks=round(at * stolen),
            ticks=at,
            programs=None
            if others is None
            else ProgramTimes(t_ns=BOOT_NS + at * MS, cpus=2, others_s=others * at / 1e3),
        )
        readings.append(LevelReading(host.t_ns, host=host))
    (level,) = level_figures(requests(4, warp=stopped(5000.0, 3000.0)), [stage(c=4)], [end(at=1e6)], readings=readings)
    assert kinds(level) == [kind]
    lines = {line.code for line in judge(level_facts([level])) if line.state == "doubtful"}
    assert ("server_stall" in lines) is (kind == "frozen")
    assert kind == "frozen" or "host_pressure" in lines


def test_a_stop_before_the_first_measured_request_is_no_silence_of_the_level() -> None:
    assert kinds(closed_loop(2, warp=stopped(300.0, 3000.0))) == []


def test_a_stop_while_requests_of_the_pre_roll_queue_is_a_silence_of_the_level() -> None:
    """Their first token comes after the first measured request was sent, so that they are part of TTFT."""
    simulator, planned = "moe-tp1?slots=6&output.median=100&output.cv=0.5", (4, 6, 8)
    healthy = simulate_sweep(simulator, "chat", planned, seed=10)[2]
    disturbed = simulate_sweep(simulator, "chat", planned, seed=10, freeze=Freeze(3, 0.126, 9.8))[2]
    assert kinds(healthy) == []
    assert (disturbed.ttft_s.mean or 0.0) > 1.5 * (healthy.ttft_s.mean or 0.0), "it changes a figure"
    assert kinds(disturbed) == ["frozen"]


def test_the_prompt_of_another_request_explains_a_silence() -> None:
    """A prompt of 85,000 tokens takes 17 s, in which the other streams wait."""
    since = sent_ms(requests(4), 13) + 1.0
    assert kinds(closed_loop(4, warp=stopped(since, 17000.0), prompts={13: 86000})) == []
    assert kinds(closed_loop(4, warp=stopped(since, 17000.0))) == ["frozen"]


def test_a_single_request_that_waits_too_long_for_its_first_token_is_named() -> None:
    since = sent_ms(requests(1), 2) + 50.0
    level = closed_loop(1, warp=stopped(since, 3000.0))
    assert kinds(level) == ["all_waiting"]
    assert level.silences[0].seconds == pytest.approx(3.0 + TTFT / 1e3, abs=0.1)


def test_pauses_between_requests_are_no_silence() -> None:
    records = [request(n * 10000.0, [n * 10000.0 + 200 + 20 * k for k in range(60)], task=n) for n in range(5)]
    (level,) = level_figures(records, [stage(load="sessions")], [end(at=1e6)])
    assert kinds(level) == []


@pytest.mark.parametrize(("for_ms", "found"), [(0.0, []), (3000.0, ["all_waiting"])])
def test_a_stop_while_the_prompts_of_a_batch_are_read_is_named(for_ms: float, found: list[str]) -> None:
    """The server reads the four prompts of a batch one after the other: the last waits for all of them."""
    records, stages = [], []
    for run in range(4):
        start = 20000.0 * run
        warp = stopped(start + 100.0, for_ms) if run == 2 else unchanged
        stages.append(stage(number=run + 1, t_ns=BOOT_NS + round(start * MS), c=4, load="barrier", run=run + 1))
        for agent in range(4):
            first = start + TTFT * (agent + 1)
            chunks = [warp(first + STEP * step) for step in range(8)]
            place: dict[str, Any] = {"agent": agent, "c": 4, "run": run + 1, "stage": run + 1, "tokens_in": PROMPT}
            records.append(request(start, chunks, task=4 * run + agent, **place))
    ends = [end(number=run + 1, at=20000.0 * run + 15000.0) for run in range(4)]
    (level,) = level_figures(records, stages, ends)
    assert kinds(level) == found


def batch(number: int, sent: float, read_ms: float, prompt: int = 400, cached: int = 0) -> list[Record]:
    """Four requests that are sent together, and whose prompts are read together."""
    return [
        request(
            sent,
            [sent + read_ms + 0.3 * n + 10 * k for k in range(8)],
            task=10 * number + n,
            agent=n,
            c=4,
            run=number,
            stage=number,
            tokens_in=prompt,
            cached_tokens=cached,
        )
        for n in range(4)
    ]


@pytest.mark.parametrize(("read_ms", "named"), [(1900.0, []), (4600.0, ["all_waiting"])])
def test_a_batch_waits_for_all_its_prompts(read_ms: float, named: list[str]) -> None:
    """Each TTFT is the time of four prompts; a stop of 3 s makes it longer than that explains."""
    times = {1: 1600.0, 2: read_ms, 3: 1700.0, 4: 1650.0}
    records = [record for number, ms in times.items() for record in batch(number, 10000.0 * number, ms)]
    stages = [stage(number, c=4, run=number, load="barrier", t_ns=BOOT_NS + 10**10 * number) for number in times]
    (level,) = level_figures(records, stages, [end(number, at=10000.0 * number + 9000) for number in times])
    assert kinds(level) == named


def test_a_few_new_tokens_of_a_long_context_explain_a_silence() -> None:
    """Prompts of 15,000 tokens, most of them cached: what is read takes about as long, however little it is."""
    records = [
        request(
            n * 6000.0, [n * 6000.0 + 3000 + 30 * k for k in range(90)], task=n, tokens_in=15000, cached_tokens=14600
        )
        for n in (0, 1, 2, 5, 6)
    ]
    late = request(19000.0, [24000.0, 24020.0], task=9, agent=1, tokens_in=15000, cached_tokens=14960)
    stream = request(
        1000.0, [2000 + 30 * k for k in range(600)] + [23500 + 30 * k for k in range(300)], task=8, agent=2
    )
    (level,) = level_figures([*records, late, stream], [stage(c=3)], [end(at=1e6)])
    assert kinds(level) == []


def test_short_answers_have_few_gaps_and_the_silence_is_none_of_them() -> None:
    warp = stopped(2350.0, 3000.0)
    records = [
        request(warp(n * 500.0), [warp(n * 500.0 + 200 + 40 * k) for k in range(7)], task=n, tokens_in=PROMPT)
        for n in range(8)
    ]
    (level,) = level_figures(records, [stage()], [end(at=1e6)])
    assert kinds(level) == ["frozen"]


def test_a_silence_at_the_end_of_a_level_that_was_cut_there_is_named() -> None:
    """A run that is ended by time is cut to whole cycles: its window may end before the silence."""
    answer = request(0.0, [200 + 20 * k for k in range(50)], task=1, tokens_in=PROMPT)
    cut = request(
        1300.0, [1500, 1520, 1540, 4600], task=2, phase="unfinished", error=CANCELLED, t_done_ns=BOOT_NS + 5000 * MS
    )
    (level,) = level_figures([answer, cut], [stage()], [end(at=5000.0)])
    assert kinds(level) == ["frozen"]


def test_a_prompt_that_is_far_longer_than_usual_may_take_longer_for_each_token() -> None:
    usual = PrefillTimes(ttft_s=0.2, per_token_s=0.0002, tokens=1000, fastest_s=0.2)
    assert [usual.longest_ns(tokens) / 1e9 for tokens in (10, 2000, 3000)] == pytest.approx([0.4, 0.8, 2.4])
