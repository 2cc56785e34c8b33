"""Group the remarks on levels by kind, with the levels that each kind concerns."""

from __future__ import annotations

from collections.abc import Sequence

from swarmtui.model.findings import ALARMS
from swarmtui.model.plan import load_title
from swarmtui.model.session import Level

# By the code of a flag; one without an entry is not grouped, and named by its code.
_KINDS = {
    "incomplete": "it ended early",
    "errors": "requests failed",
    "c_held": "C was not held",
    "steady_below_wall": "there were too few requests for a steady rate",
    "degenerate": "some answers were empty or made no sense",
    "uncounted": "some answers had no token count and are in no rate",
    "token_source": "the server did not count all tokens",
    "coalesced_chunks": "some tokens arrived together",
    "first_reads": "some first tokens arrived together with later ones",
    "miscounted": "the server counted too few tokens of some answers",
    "send_delay": "requests were sent late",
    "overloaded": "requests piled up",
    "read_stamps": "arrival times are less exact than those of the kernel",
    "server_gone": "the server went away",
    "host_silent": "a host did not answer",
    "synchronised": "agents kept in step with each other",
    "cancel_ignored": "the server went on with cancelled requests",
    "precision_missed": "the precision was not reached",
    "faster_stream": "agents were faster than a single one",
    "misfit": "tok/s do not fit the levels beside",
    "serial_extrapolated": "the serial time is extrapolated",
    "canaries_not_applicable": "canaries cannot be checked",
    "host_pressure": "the host was busy",
    "host_steal": "other virtual machines took CPU time",
}
_NAMED = 3
# Of all answers, this share that makes no sense is said beside the quality: what was measured is not what is meant.
_ODD_SHARE = 0.05
# A token limit is chosen, and mostly for all levels: it is no fault of any of them.
AT_LIMIT = "cap_hits"


def remarks(levels: Sequence[Level], *, alarms: bool = True) -> list[str]:
    """One line for each kind of remark: the levels, and what is said of them, or of the last if that differs.

    `C=1,2,4: the host was busy; at C=4 tasks waited for a CPU in 91 % of the time`; canaries and alarms, which can be
    left out, have a line each, and answers at the token limit one for all levels.
    """
    said: dict[tuple[str, str], dict[str, list[Level]]] = {}
    for level in levels:
        for flag in level.flags:
            if flag.code == AT_LIMIT or (flag.code in ALARMS and not alarms):
                continue
            kind = flag.code, "" if flag.code in _KINDS else flag.text
            said.setdefault(kind, {}).setdefault(flag.text, []).append(level)
    return [*(_remark(code, texts, load_title(levels)) for (code, _), texts in said.items()), *at_limit(levels)]


def at_limit(levels: Sequence[Level]) -> tuple[str, ...]:
    """Say once how many answers of all levels ended at the token limit; nothing if none did."""
    hits, ok = sum(level.cap_hits for level in levels), sum(level.ok for level in levels)
    return (f"{hits} of {ok} finished answers ended at the token limit",) if hits else ()


def odd_answers(levels: Sequence[Level]) -> int:
    """Count the answers that were empty or made no sense, if they are more than a few of all."""
    odd, ok = sum(level.degenerate for level in levels), sum(level.ok for level in levels)
    return odd if odd >= _ODD_SHARE * ok else 0


def _remark(code: str, texts: dict[str, list[Level]], title: str) -> str:
    levels = [level for of in texts.values() for level in of]
    at = ",".join(f"{level.offered_load:g}" for level in sorted(levels, key=lambda level: level.offered_load))
    where = f"{'✗ ' if code in ALARMS else ''}{title}={at}"
    *others, last = texts
    if not others:
        return f"{where}: {last}"
    said = last.removeprefix(_kind(code)).lstrip(" :")
    return f"{where}: {_kind(code)}; at {texts[last][-1].name} {said}"


def grouped_remarks(levels: Sequence[Level]) -> tuple[str, ...]:
    """`some tokens arrived together in 4 levels`, `requests failed at C=8`; alarms are not among them."""
    kinds: dict[str, list[Level]] = {}
    for level in levels:
        for code in dict.fromkeys(flag.code for flag in level.flags if flag.code not in (*ALARMS, AT_LIMIT)):
            kinds.setdefault(code, []).append(level)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    return (*(f"{_kind(code)} {_where(of)}" for code, of in ordered), *at_limit(levels))


def _kind(code: str) -> str:
    return _KINDS.get(code, code.replace("_", " "))


def _where(levels: Sequence[Level]) -> str:
    names = " and ".join(level.name for level in levels)
    return f"at {names}" if len(levels) < _NAMED else f"in {len(levels)} levels"
