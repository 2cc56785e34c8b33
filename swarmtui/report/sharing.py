"""Make what is shared of a session: a card, a post and one file; and say what is in them and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.model.shared import SHARED_SUFFIX
from swarmtui.report.card import card_svg
from swarmtui.report.environment import environment
from swarmtui.report.images import rasterise
from swarmtui.report.markdown import post_markdown
from swarmtui.report.table import Block, Facts, Sentence
from swarmtui.sessions.private import without_private
from swarmtui.sessions.shared_file import shared_bytes
from swarmtui.sessions.store import read_summary
from swarmtui.text import count_noun

_LEFT_OUT = (
    "prompts and answers, single requests, addresses, names of hosts, users and programs, paths, keys, label, note, "
    "tags, events"
)


class SharedSession(NamedTuple):
    """A session without anything private. `contains` is what is in it, `left_out` what is not."""

    summary: Summary
    contains: tuple[tuple[str, str], ...]
    left_out: str


class SharedFormat(NamedTuple):
    """A format by the `suffix` of its files; `attached` is the one that holds all figures."""

    suffix: str
    render: Callable[[Summary, str], bytes]
    attached: bool = False


def prepare(root: Path, which: str, *, label: str = "", model: str = "") -> SharedSession:
    """Read a session, or a shared file, and leave out what is private.

    The label of a shared file was typed to be shown; that of a session was not.
    """
    read = read_summary(root, which)
    if not read.levels:
        raise BadInput("nothing was measured, so there is nothing to share", key=which)
    found = without_private(read, label=label or (read.session.label if read.session.is_shared else ""), model=model)
    flags = f"; flags: {', '.join(found.flags)}" if found.flags else ""
    return SharedSession(found.summary, _contents(found.summary), _LEFT_OUT + flags)


def _contents(summary: Summary) -> tuple[tuple[str, str], ...]:
    """List all that is in a shared file, by name and text."""
    session, known = summary.session, environment(summary)
    runs = sum(level.runs for level in summary.levels)
    levels = ", ".join(level.name for level in summary.levels)
    requests = count_noun(sum(level.n for level in summary.levels), "request")
    client = session.client
    rows = (
        ("Label", session.label),
        ("Answer", summary.answer.headline.sentence if summary.answer else ""),
        ("Figures", f"{levels}: {count_noun(runs, 'run')} of {requests} in all"),
        ("Quality", f"{len(summary.quality)} lines, {len(summary.checks)} checks" if summary.quality else ""),
        *known.rows("; its name and digest, not its prompts", flags="none"),
        ("Client", f"{known.tool}, Python {client.python}, {client.cores} cores, Linux {client.kernel}"),
        ("Session", f"{session.id}, {session.created}" + (", SIMULATED" if session.simulated else "")),
    )
    return tuple((name, text) for name, text in rows if text)


def shared_format(name: str) -> SharedFormat:
    found = next((form for form in FORMATS if name.endswith(form.suffix)), None)
    if found is None:
        known = ", ".join(form.suffix for form in FORMATS)
        raise BadInput(f"its name must end with one of {known}", source=name)
    return found


def default_names(found: SharedSession) -> list[str]:
    return [f"{found.summary.session.id}{form.suffix}" for form in FORMATS]


def render_files(found: SharedSession, names: Sequence[str]) -> list[bytes]:
    """Return the contents of files by the ends of their names; a post names the shared file beside it."""
    forms = [shared_format(name) for name in names]
    attached = next((Path(name).name for name, form in zip(names, forms, strict=True) if form.attached), "")
    return [form.render(found.summary, attached) for form in forms]


FORMATS = (
    SharedFormat(".png", lambda summary, _: rasterise(card_svg(summary), zoom=1)),
    SharedFormat(".svg", lambda summary, _: card_svg(summary).encode()),
    SharedFormat(".md", post_markdown),
    SharedFormat(SHARED_SUFFIX, lambda summary, _: shared_bytes(summary), attached=True),
)


def shared_blocks(found: SharedSession, written: str, remarks: Sequence[str], hint: str) -> list[Block]:
    """Say what was written, what is in it, what is not, and how it can be changed."""
    contents: list[Block] = [Facts(found.contains, answer=True, head="In it:"), Sentence("")] if found.contains else []
    return [
        Sentence(f"written: {written}", "title"),
        *(Sentence(remark, "note") for remark in remarks),
        Sentence(""),
        *contents,
        Sentence(f"Not in it: {found.left_out}."),
        *((Sentence(hint, "detail"),) if hint else ()),
    ]
