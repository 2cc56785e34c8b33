"""The answer of a session as named lines, and as advice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.capacity.words import agents_number
from swarmtui.analysis.limits.slo import time_text
from swarmtui.analysis.machine.energy import count_names
from swarmtui.model.answer import Answer, AnswerPoint, NextStep
from swarmtui.model.session import Summary
from swarmtui.numbers import percent, rate, seconds
from swarmtui.report.remarks import odd_answers
from swarmtui.report.table import Block, Facts, Sentence
from swarmtui.text import count_noun

# Steps that change nothing about the server: they measure again, or say what was tried already.
_NO_CHANGE = ("quiet_host", "client_limit", "measure_again", "unsure_search", "slots_tried", "repeat_run")
# Steps whose command is a flag of the server.
_FLAGS = (
    "more_slots_agents", "more_slots_tps", "more_slots", "slots_back", "go_back", "keep_context", "faster_before",
    "narrow_kv", "left_out_flag",
)  # fmt: skip
# The keys of the app that do what a step says.
_KEYS = {"repeat_run": "R", "server_changed": "R", "unsure_search": "N", "longer_search": "N", "longer_searches": "N"}

NOT_SURE = "not sure"
NO_STEP = "nothing that these figures point to"


def answer_number(found: Answer) -> str:
    """Return the number of agents, or the best level, for where it stands alone: `5`, `5+`, `5?`, `16–35`"""
    doubtful = found.is_doubtful
    if found.agents is not None:
        parts = agents_number(found.agents, is_open=found.is_open, doubtful=doubtful, wide=found.wide_range)
        return "".join(reversed(parts))
    return "" if found.best_c is None else f"{found.best_c}{'?' if doubtful else ''}"


def answer_rows(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Return the lines of an answer, each with its name; those that nothing was measured for are left out.

    One agent, the capacity or the best level, how sure that is if it may be another, the figures at it, why no more,
    what to try next, and the quality.
    """
    found = summary.answer
    if found is None:
        return ()
    at = found.at_capacity
    rows = [
        ("One agent", one_agent_text(summary, found.one_agent) if found.one_agent else ""),
        ("Capacity" if found.agents is not None else "Result", found.headline.sentence),
        ("Doubt", doubt_text(found)),
        ("How sure", found.border if found.high != found.agents else ""),
        (f"At {at.c}" if at else "", point_text(at) if at else ""),
        ("Why no more", found.limit.sentence if at or found.agents is not None else ""),
        ("Try next", steps_text(leading_steps(found.next))),
        ("Quality", _quality_row(summary, found) if summary.levels else ""),
    ]
    return tuple((name, text) for name, text in rows if text)


def doubt_text(found: Answer) -> str:
    """Say why a number is in doubt: `the host was busy, so missed levels are not sure`; empty if it is not."""
    missed_open = found.missed_c and (found.high is None or found.missed_c <= found.high)
    until = "" if found.high is None else f" up to {found.high} agents"
    proves = f", so missed levels{until} are not sure" if found.disturbed and missed_open else ""
    return f"{found.doubts}{proves}" if found.doubts and found.quality == "doubtful" else ""


def _quality_row(summary: Summary, found: Answer) -> str:
    """`ok; 15 of 132 answers were empty or made no sense`; the doubt has a row of its own."""
    odd, of = odd_answers(summary.levels), sum(level.ok for level in summary.levels)
    said = f"{odd} of {count_noun(of, 'answer')} were empty or made no sense" if odd else ""
    return "; ".join(filter(None, (NOT_SURE if doubt_text(found) else quality_text(found), said)))


def quality_text(found: Answer) -> str:
    """`ok`, also with remarks, or `not sure: the host was busy`"""
    return ": ".join(filter(None, (NOT_SURE, found.doubts))) if found.quality == "doubtful" else "ok"


def quick_blocks(
    summary: Summary, seconds: float | None, show: str, compared: str = "", price: str = ""
) -> list[Block]:
    """Show an answer in six lines, below one that says what was measured; `show` is the command that shows all.

    `seconds` is how long it took, if that is to be said, `compared` whether a change helped, and `price` what it took.
    """
    session = summary.session
    server = summary.servers[0] if summary.servers else None
    model = next((endpoint.model for endpoint in session.endpoints), "")
    limit = session.plan.max_tokens
    head = (
        " ".join(filter(None, (server.engine, server.version))) if server else "",
        model,
        count_names(summary.gpus),
        count_noun(server.slots, "slot") if server and server.slots else "",
        f"{session.workload}{f', answers of at most {limit} tokens' if limit else ''}",
    )
    rows = dict(answer_rows(summary))
    rows.setdefault("Try next", NO_STEP)
    saved = f"all figures: {show}" if seconds is None else f"{seconds:.0f} s · saved: {show}"
    quality = rows.pop("Quality", "")
    rows["Quality"] = " · ".join(filter(None, (quality, saved)))
    lines = [*rows.items()]
    if compared:
        after = max(number for number, name in enumerate(rows) if name in ("Capacity", "Result", "Doubt", "How sure"))
        lines[after + 1 : after + 1] = [("Compared", compared), *([("Price", price)] if price else [])]
    return [Facts(tuple(lines), answer=True, head=" · ".join(filter(None, head)))]


def one_agent_text(summary: Summary, point: AnswerPoint) -> str:
    """`first token in 31 ms, then 168 tok/s (39 % of the limit)`"""
    limit = summary.speed_of_light.level(point.c) if summary.speed_of_light else None
    parts = [f"first token in {seconds(point.ttft_s, 2)}" if point.ttft_s is not None else ""]
    if point.per_stream_tps is not None:
        share = "" if limit is None or limit.share is None else f" ({percent(limit.share)} of the limit)"
        parts.append(f"{'then ' if parts[0] else ''}{rate(point.per_stream_tps, point.half_width)} tok/s{share}")
    return ", ".join(filter(None, parts))


def point_text(point: AnswerPoint, *, brief: bool = False) -> str:
    """`573 tok/s in total, 36 per agent while writing, at most 16 at once; first token 1.2 s (median), 1.63 s (p90)`

    With few requests the p90 is not known: then it is how many of them kept the SLO. A `brief` text is beside the table
    of levels, which has that count and medians, but no lengths of answers.
    """
    total = "" if brief else " in total"
    parts = [f"{rate(point.out_tps, point.half_width)} tok/s{total}" if point.out_tps is not None else ""]
    if point.per_stream_tps is not None:
        each = rate(point.per_stream_tps, point.half_width)
        parts.append(f"{each} {'' if parts[0] else 'tok/s '}{'each' if brief else 'per agent while'} writing")
        parts.append(f"at most {point.at_once} at once" if point.at_once else "")
    typical = seconds(point.ttft_s) if point.ttft_s is not None else ""
    p90 = first_token_p90(point)
    times = (f"{typical} (median)" if typical else "", f"{p90} (p90)" if p90 else _met(point))
    first = f"first token {', '.join(filter(None, times))}" if any(times) else ""
    tokens = round(point.tokens_out or 0)
    length = f"answers of {count_noun(tokens, 'token')}" if tokens else ""
    if brief and (p90 or length or typical):
        first = f"first token p90 {p90}" if p90 else "" if length else f"median first token {typical}"
    return "; ".join(filter(None, (", ".join(filter(None, parts)), first, length)))


def first_token_p90(point: AnswerPoint) -> str:
    """Return an empty text for too few requests, and for a time between two of them that contradicts their count."""
    value, limit = point.ttft_p90_s, point.ttft_limit_s
    if value is None:
        return ""
    if limit is not None and point.ttft_n and (value <= limit) != ((point.ttft_good or 0) >= 0.9 * point.ttft_n):
        return ""
    return seconds(value)


def _met(point: AnswerPoint) -> str:
    """`within 2 s in 19 of 19`"""
    if point.ttft_limit_s is None or not point.ttft_n:
        return ""
    return f"within {time_text(point.ttft_limit_s)} in {point.ttft_good} of {point.ttft_n}"


def leading_steps(steps: tuple[NextStep, ...]) -> tuple[NextStep, ...]:
    """Return what to try first; after what changes nothing about the server, also the setting that figures point to.

    What that setting would bring depends on the first step. A flag that was left out is not all there is to do.
    """
    if steps and steps[0].code == "left_out_flag":
        return steps[:2]
    if len(steps) < 2 or steps[0].code not in _NO_CHANGE:
        return steps[:1]
    first, then = steps[:2]
    before = " (no forecast until then)" if then.forecast else ""
    return first, msgspec.structs.replace(then, sentence=f"{then.command}{before}" if then.command else then.sentence)


def needs_restart(step: NextStep) -> bool:
    """Whether the server has to be started with the command of this step."""
    return step.code in _FLAGS and bool(step.command)


def app_step(step: NextStep) -> NextStep:
    """Return a step as the app shows it: a key instead of the command that measures again, or after a restart."""
    if step.code in ("surer_each", "meanwhile"):
        return msgspec.structs.replace(step, sentence=f"press N: {step.sentence}", command="")
    key = _KEYS.get(step.code)
    if step.code == "repeat_earlier":
        return msgspec.structs.replace(step, sentence=f"{step.sentence}{restart_clause('R')}")
    return step if key is None else msgspec.structs.replace(step, sentence=f"{key}: {step.sentence}", command="")


def restart_clause(key: str) -> str:
    return f"; restart with it, then press {key}"


def steps_text(steps: Sequence[NextStep], again_key: str = "", *, commands: bool = True) -> str:
    """Join steps in their order; `again_key` measures a server again that was restarted for the first of them."""
    texts = [step_text(step) if commands else step.sentence for step in steps]
    if again_key and steps and needs_restart(steps[0]):
        texts[0] += restart_clause(again_key) if len(texts) == 1 else "; restart with it"
    return "; then ".join(texts)


def step_text(step: NextStep) -> str:
    """Return a step with its command, unless that is a part of it."""
    return step.sentence if step.command in step.sentence else f"{step.sentence}: {step.command}"


def advice_blocks(summary: Summary) -> list[Block]:
    """Show all next steps with their evidence; the first line says which session they are about."""
    session = summary.session
    model = next((endpoint.model for endpoint in session.endpoints), "")
    name = " · ".join(filter(None, (session.id, session.label, model, session.workload)))
    steps = summary.answer.next if summary.answer else ()
    if not steps:
        return [Sentence(f"session {name}: nothing in it suggests a change", "title")]
    return [
        Sentence(f"session {name}", "title"),
        *(
            sentence
            for step in steps
            for sentence in (Sentence(step_text(step)), *([Sentence(step.evidence, "detail")] if step.evidence else []))
        ),
    ]
