"""Remove from a summary what is private: prompts, addresses, names of hosts, users and programs, paths, keys, notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from swarmtui.analysis.compare.differences import flags_text, known_flags, option_name, parse_flags
from swarmtui.analysis.limits.slo import read_slo, usable_slo
from swarmtui.analysis.quality.host import busy_text, program_text
from swarmtui.engines.command_line import is_shared_flag, shared_flags
from swarmtui.model.answer import Answer
from swarmtui.model.endpoint import Endpoint
from swarmtui.model.hosts import Host
from swarmtui.model.redaction import MASK, has_key_prefix
from swarmtui.model.session import ClientInfo, Event, Level, Session, Summary
from swarmtui.model.speed_of_light import ModelShape, SpeedOfLight
from swarmtui.model.telemetry import DiscoveredServer, Program
from swarmtui.text import sanitize, truncate

_LONGEST_TEXT = 600
_LONGEST_NAME = 120
_IMPORTED = "imported"
# Numbers, or a word or several: no path, no address, no sentence.
_PLAIN_NAME = re.compile(r"[\w.+:@-]{1,80}", re.ASCII)
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}|shared-[0-9a-f]{8}")
_ERROR_NAME = re.compile(r"[a-z0-9_ ]{1,40}")
_KERNEL = re.compile(r"\d+(?:\.\d+){0,2}")
# The fields with sentences, which may repeat a name; the others are numbers, codes and names that are kept or not.
_SENTENCES = frozenset(
    ("sentence", "text", "value", "limit", "reason", "because", "doubts", "disturbed", "detail", "how",
     "bandwidth_from", "peak_from", "command")
)  # fmt: skip
# What is private by its form: URLs, mail addresses, IP addresses and paths.
_PRIVATE_FORM = re.compile(
    r"\w+://\S+|\S+@\S+\.\w+|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?|(?<![\w.])(?:~|/[\w.@+-]+)/[\w./@+-]*"
)


class Cleaned(NamedTuple):
    """A summary without anything private; `flags` are the names of those that were left out."""

    summary: Summary
    flags: tuple[str, ...] = ()


def without_private(summary: Summary, *, label: str = "", model: str = "") -> Cleaned:
    """Return what may be shared. The label and the model, if given, are shown instead of those of the session."""
    session, model = summary.session, truncate(sanitize(model), _LONGEST_NAME)
    slo = read_slo(session.plan.slo)
    flags = [flags for flags in (known_flags(summary), *(server.flags for server in summary.servers)) if flags]
    hidden = {name for found in flags for name in found if name and not is_shared_flag(name, found[name])}
    left_out = sorted(map(option_name, hidden))
    shared = msgspec.structs.replace(
        summary,
        message="",
        session=_session(session, label, model),
        levels=tuple(_level(level, session.t0_ns) for level in summary.levels),
        events=tuple(_imported_note(summary)),
        capacity=msgspec.structs.replace(summary.capacity, slo=str(slo)) if summary.capacity and slo else None,
        speed_of_light=_limits(summary.speed_of_light),
        servers=tuple(_server(server, model) for server in summary.servers),
        gpus=tuple(_name(name) for name in summary.gpus),
        tasks=(),
        answer=_answer(summary.answer),
        quality=tuple(msgspec.structs.replace(line, programs=()) for line in summary.quality),
    )
    found = _masked(msgspec.to_builtins(shared), _private_words(summary, label, model), _without_programs(summary))
    return Cleaned(msgspec.convert(found, Summary), tuple(left_out))


def _session(session: Session, label: str, model: str) -> Session:
    plan, client = session.plan, session.client
    flags = shared_flags(parse_flags(session.server_flags))
    kernel = _KERNEL.match(client.kernel)
    imported = _name(session.tags.get(_IMPORTED, ""))
    return Session(
        id=session_id(session.id),
        created=truncate(sanitize(session.created), 40),
        t0_ns=0,
        endpoints=tuple(
            Endpoint(url="", model=model or model_name(one.model), dialect=one.dialect, engine=_name(one.engine))
            for one in session.endpoints
        ),
        workload=_name(session.workload),
        workload_digest=_plain_name(session.workload_digest),
        workload_spec={},
        plan=msgspec.structs.replace(plan, slo=usable_slo(plan.slo)),
        client=ClientInfo(
            version=_name(client.version),
            python=_plain_name(client.python),
            host="",
            cores=client.cores,
            kernel=kernel.group() if kernel else "",
        ),
        hosts=tuple(
            Host(name=f"host {number}", address="", machine="", cores=host.cores, workers=host.workers)
            for number, host in enumerate(session.hosts, 1)
        ),
        label=truncate(sanitize(label), _LONGEST_NAME),
        tags={_IMPORTED: imported} if imported else {},
        server_flags=flags_text(flags),
        prompt_tokens_by=session.prompt_tokens_by,
        simulated=session.simulated,
    )


def session_id(text: str) -> str:
    """Return the id of a session of ours; that of another tool is the name of a file."""
    return text if _ID.fullmatch(text) else f"shared-{crc32(text.encode(errors='replace')):08x}"


def model_name(name: str) -> str:
    """Return the name of a model without the directory it is in: `org/model` is a name, other slashes are a path."""
    parts = [part for part in re.split(r"[/\\]", name) if part]
    is_path = name.startswith(("/", "~", ".")) or "\\" in name or len(parts) > 2 or name.endswith((".gguf", ".bin"))
    return truncate(sanitize(parts[-1] if is_path and parts else name), _LONGEST_NAME)


def _server(server: DiscoveredServer, model: str) -> DiscoveredServer:
    models = (model,) if model and server.models else tuple(map(model_name, server.models))
    return DiscoveredServer(
        url="",
        engine=_name(server.engine),
        version=_plain_name(server.version),
        models=models,
        context=server.context,
        slots=server.slots,
        kv_tokens=server.kv_tokens,
        block_size=server.block_size,
        kv_token_bytes=server.kv_token_bytes,
        shape=_shape(server.shape),
        flags=None if server.flags is None else shared_flags(server.flags),
    )


def _shape(shape: ModelShape | None) -> ModelShape | None:
    if shape is None:
        return None
    name, bits = _name(shape.architecture), _name(shape.quantisation)
    return msgspec.structs.replace(shape, path="", architecture=name, quantisation=bits)


def _limits(found: SpeedOfLight | None) -> SpeedOfLight | None:
    return found and msgspec.structs.replace(found, model=_shape(found.model), missing=())


def _level(level: Level, t0_ns: int) -> Level:
    errors: dict[str, int] = {}
    for name, count in level.error_counts.items():
        kept = name if _ERROR_NAME.fullmatch(name) else "other"
        errors[kept] = errors.get(kept, 0) + count
    silences = tuple(msgspec.structs.replace(one, t_ns=max(0, one.t_ns - t0_ns)) for one in level.silences)
    host = level.host and msgspec.structs.replace(level.host, programs=())
    return msgspec.structs.replace(level, error_counts=errors, silences=silences, host=host)


def _answer(answer: Answer | None) -> Answer | None:
    """Keep the sentences; commands of ours name an address, and the evidence is in the figures."""
    if answer is None:
        return None
    steps = tuple(
        msgspec.structs.replace(step, command="" if step.command.startswith("swarmtui ") else step.command, evidence="")
        for step in answer.next
    )
    return msgspec.structs.replace(answer, next=steps, slo=usable_slo(answer.slo))


def _imported_note(summary: Summary) -> Iterator[Event]:
    """Keep that figures are of another tool, which `compare` says."""
    if tool := _name(summary.session.tags.get(_IMPORTED, "")):
        yield Event(t_ns=0, name=_IMPORTED, detail=f"imported from {tool}: wall rates only, no steady rates")


def _name(text: str) -> str:
    return truncate(_PRIVATE_FORM.sub(MASK, sanitize(text)), _LONGEST_NAME)


def _plain_name(text: str) -> str:
    """Return a version, an id or a digest; empty if it is something else."""
    return text if _PLAIN_NAME.fullmatch(text) else ""


def _private_words(summary: Summary, *shown: str) -> re.Pattern[str] | None:
    """Return a pattern of the names that the session knows, wherever a sentence may repeat them."""
    words = {word for word in _known_names(summary) if len(word) >= 3 and word not in shown}
    if not words:
        return None
    longest_first = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)", re.IGNORECASE)


def _known_names(summary: Summary) -> Iterator[str]:
    session = summary.session
    yield session.client.host
    for endpoint in session.endpoints:
        yield from _address_words(endpoint.url)
        yield from endpoint.header_names
    for host in session.hosts:
        yield from (host.name, host.address, host.machine)
    for server in summary.servers:
        yield server.user
        yield from (*_address_words(server.url), *server.gpus)
        yield from _hidden_values(server.flags or {})
    yield from _hidden_values(parse_flags(session.server_flags))
    # Their names alone may be words of any sentence.
    yield from (program_text(program) for programs in _busy_programs(summary) for program in programs)


def _busy_programs(summary: Summary) -> Iterator[Sequence[Program]]:
    """Yield the programs that made the host busy, for each sentence that names them together."""
    yield from (line.programs for line in summary.quality)
    yield from (level.host.programs for level in summary.levels if level.host)


def _without_programs(summary: Summary) -> dict[str, str]:
    """Return what stands for the texts that name programs: the same without names."""
    known = [programs for programs in _busy_programs(summary) if programs]
    return {busy_text(programs, brief=brief): busy_text(()) for programs in known for brief in (False, True)}


def _hidden_values(flags: Mapping[str, str]) -> Iterable[str]:
    values = (value for name, value in flags.items() if not is_shared_flag(name, value))
    # Numbers and words of all servers are in the sentences of all sessions.
    return (value for value in values if not re.fullmatch(r"[\d.]+|true|false|auto|none|on|off", value))


def _address_words(url: str) -> tuple[str, ...]:
    host = re.sub(r"^\w+://|[/?#].*$", "", url)
    return url, host, re.sub(r":\d+$", "", host)


def _masked(value: Any, private: re.Pattern[str] | None, plain: Mapping[str, str], field: str = "") -> Any:
    """Mask what is private in the sentences of decoded JSON, and keys in all texts; bound the length of all.

    `plain` are texts that are replaced by others, rather than masked in parts.
    """
    match value:
        case dict():
            return {
                truncate(sanitize(key), _LONGEST_NAME): _masked(part, private, plain, key)
                for key, part in value.items()
            }
        case list() | tuple():
            return [_masked(part, private, plain, field) for part in value]
        case str() if has_key_prefix(value):
            return MASK
        case str():
            text = sanitize(value)
            if field in _SENTENCES:
                for named, unnamed in plain.items():
                    text = text.replace(named, unnamed)
                text = _PRIVATE_FORM.sub(MASK, text)
                text = private.sub(MASK, text) if private else text
            return truncate(text, _LONGEST_TEXT)
    return value
