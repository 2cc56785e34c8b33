"""Build the page at the end of an automatic tune: what to change, how sure that is, what did not matter."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.analysis.tuning.outcome import (
    FailedStart,
    KnobEffect,
    NotTried,
    RecipeFlag,
    TuneOutcome,
    shown_name,
    starts_sentence,
)
from swarmtui.model.tuning import POWER, Objective
from swarmtui.numbers import signed_percent, significant
from swarmtui.report.table import Block, Column, Sentence, Table, tabulate
from swarmtui.report.tuning import OBJECTIVES, between, shown_flags

_BETTER: dict[Objective, str] = {
    "agents": "more agents", "out_tps": "more tok/s", "ttft_s": "a shorter TTFT", "j_per_token": "fewer J/token",
}  # fmt: skip


def outcome_blocks(found: TuneOutcome) -> list[Block]:
    blocks: list[Block] = [Sentence(found.sentence, "lead")]
    if found.decision is not None:
        # Its words are about speed.
        said = found.decision.sentence if found.objective in ("out_tps", "ttft_s") else found.decision.detail
        blocks.append(Sentence(f"ab, {OBJECTIVES[found.objective]} compared with the command: {said}"))
    blocks += [Sentence(f"note: {found.note}", "note")] if found.note else []
    recommended = found.code in ("confirmed", "not_sure", "not_tested", "running") and found.flags
    if recommended and found.command:
        blocks += [Sentence("start it:"), Sentence(found.command, "command")]
        if POWER in found.flags:
            limit = f"sudo nvidia-smi -pl {found.flags[POWER]}"
            blocks += [Sentence("set the power limit, of all GPUs or with -i of some:"), Sentence(limit, "command")]
    if found.session and recommended:
        again = f"swarmtui run --baseline {found.session} --endpoint URL"
        blocks += [Sentence("compare later runs with it:"), Sentence(again, "command")]
    changed = {change.knob for change in found.changes}
    mattered = [effect for effect in found.effects if effect.knob in changed and effect.gain > 0.0]
    others = [effect for effect in found.effects if effect not in mattered]
    blocks += [_effect_table("What was changed", mattered, found.objective)] if mattered else []
    blocks += [_effect_table("What did not help", others, found.objective)] if others else []
    blocks += _recipe_blocks(found)
    if len(found.front) > 1:
        points = (
            f"{shown_flags(of.flags)} ({significant(of.value)}, {significant(of.j_per_token, 3)} J)"
            for of in found.front
        )
        blocks.append(Sentence(f"Pareto front of {OBJECTIVES[found.objective]} and J/token: {'; '.join(points)}"))
    blocks += [_failed_table(found.failed)] if found.failed else []
    blocks += [_not_tried_table(found.not_tried)] if found.not_tried else []
    blocks.append(Sentence(starts_sentence(found), "detail"))
    return blocks


def _recipe_blocks(found: TuneOutcome) -> list[Block]:
    if not found.recipe:
        return []
    columns: list[Column[RecipeFlag]] = [
        Column("flag", "flag", lambda of: of.knob, right=False, least=12),
        Column("yours", "yours", lambda of: "not set" if of.yours is None else str(of.yours), right=False),
        Column("recipe", "recipe", lambda of: str(of.recipe), right=False),
        Column("same", "", lambda of: "same" if of.yours == of.recipe else "", right=False),
    ]
    gain = found.recipe_gain
    note = "" if gain is None else f"the recipe as a whole: {signed_percent(gain)} in one start each, not confirmed"
    return [tabulate("Your flags against the recipe", found.recipe, columns, note)]


def _effect_table(title: str, effects: Sequence[KnobEffect], objective: Objective) -> Table:
    columns: list[Column[KnobEffect]] = [
        Column("knob", "flag", lambda of: shown_name(of.knob), right=False, least=10),
        Column(
            "value", "value", lambda of: f"{of.value}" if of.base is None else f"{of.base} → {of.value}", right=False,
            least=8,
        ),
        Column("gain", "gain", lambda of: of.gain, signed_percent),
        Column("range", "95 % range", lambda of: between(of.low, of.high)),
        Column("starts", "starts", lambda of: of.starts),
    ]  # fmt: skip
    note = f"gain: {_BETTER[objective]}, all else equal; a gain above the range is ruled out"
    return tabulate(title, effects, columns, note, ("starts", "range"))


def _failed_table(failed: Sequence[FailedStart]) -> Table:
    columns: list[Column[FailedStart]] = [
        Column("flags", "configuration", lambda of: shown_flags(of.flags), right=False, least=20),
        Column("reason", "failed", lambda of: of.reason, right=False, least=12),
        Column("line", "log", lambda of: of.line if of.line != of.reason else "", right=False, least=12),
    ]
    return tabulate("What failed", failed, columns)


def _not_tried_table(rows: Sequence[NotTried]) -> Table:
    columns: list[Column[NotTried]] = [
        Column("what", "flag", lambda of: of.what, right=False, least=16),
        Column("reason", "why", lambda of: of.reason, right=False, least=20),
    ]
    return tabulate("What was never tried", rows, columns)
