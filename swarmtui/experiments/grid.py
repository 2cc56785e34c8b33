"""The configurations of a tune: how each is launched, in which order, and which advance to the next round."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from random import Random
from typing import Literal, TypeVar

import msgspec

from swarmtui.engines.base import Engine
from swarmtui.engines.knobs import CommandFlags, split_assignments, write_knobs
from swarmtui.engines.registry import GENERIC, engine_from_command, engine_named
from swarmtui.experiments.server_guardian import LaunchCommand
from swarmtui.model.base import BadInput, Stored
from swarmtui.model.endpoint import check_url
from swarmtui.model.load import Closed, LimitedLoad, Load, Sessions
from swarmtui.model.parsing import parse_seconds
from swarmtui.model.tuning import (
    AutoSearch,
    Flags,
    Objective,
    Start,
    Tune,
    TuneFile,
    Value,
    configuration_key,
    value_text,
)

StartT = TypeVar("StartT", bound=Start)


class TuneRound(Stored, frozen=True, kw_only=True):
    """One start of each configuration that takes part: how many these are, and their share of the requests.

    `restart` numbers the starts by which configurations are ranked; 0 is a round that chooses them.
    """

    number: int
    configurations: int
    share: float = 1.0
    restart: int = 0


def all_configurations(tune: TuneFile) -> tuple[Flags, ...]:
    """The product of the grid, then what is listed under [[configurations]], each with all values of the knobs."""
    listed = (*_combinations(tune.grid), *tune.configurations) if tune.grid else tune.configurations
    if tune.knob and not listed:
        listed = ({},)
    live = _combinations({knob.key: knob.choices for knob in tune.knob})
    found: dict[str, Flags] = {}
    for server, values in product(listed, live):
        flags = server | values
        found.setdefault(configuration_key(flags), flags)
    return tuple(found.values())


def _combinations(values: Mapping[str, Sequence[Value]]) -> list[Flags]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def server_flags(tune: TuneFile, flags: Flags) -> Flags:
    """The flags of a configuration that its server is started with: without those that change while it runs."""
    live = {knob.key for knob in tune.knob}
    return {name: value for name, value in flags.items() if name not in live}


def has_one_server(tune: TuneFile) -> bool:
    """Whether only knobs differ, so that one start of the server is enough for everything."""
    return bool(tune.knob) and len(tune.configurations) + len(_combinations(tune.grid)) * bool(tune.grid) <= 1


def launch_command(tune: TuneFile, flags: Flags, port: int | str, key: str = "command") -> LaunchCommand:
    """Return how to start a server with these flags; errors about its command name `key`."""
    flags = server_flags(tune, flags)

    def fill(text: str, port: int | str = port) -> str:
        return filled(text, flags | {"port": port})

    words = split_command(tune.command, key)
    appended = {name: value for name, value in flags.items() if f"{{{name}}}" not in tune.command}
    if tune.auto is not None:
        command = write_knobs(words, appended, tune_engine(tune).knobs)
    else:
        # As appended, so that a flag which the command has as well counts twice, for programs that collect values.
        own = split_assignments(words)
        added = write_knobs((), appended, ())
        command = CommandFlags((*own.words, *added.words), own.env | added.env)
    arguments = [fill(argument) for argument in command.words]
    env = {name: fill(value) for name, value in (tune.env | command.env).items()}
    check_url(fill(tune.url, 1))
    url, ready = fill(tune.url), fill(tune.ready)
    base, mark, query = url.partition("?")
    return LaunchCommand(
        command=tuple(arguments),
        url=url,
        ready=ready if "://" in ready else f"{base.rstrip('/')}/{ready.lstrip('/')}{mark}{query}",
        env=env,
        pass_env=tune.pass_env,
        directory=tune.directory,
        ready_within_s=parse_seconds(tune.ready_within, "ready_within"),
        stop=tuple(fill(argument) for argument in split_command(tune.stop, "stop")),
        stop_within_s=parse_seconds(tune.stop_within, "stop_within"),
    )


def filled(text: str, values: Flags) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value_text(value))
    return text


def tune_engine(tune: TuneFile) -> Engine:
    """Return the engine of the command: the one that is named, else by its program or any other word of it."""
    if tune.auto is not None and tune.auto.engine:
        return engine_named(tune.auto.engine)
    words = split_assignments(split_command(tune.command, "command")).words
    found = engine_from_command(words)
    if found is None or not found.knobs:
        # A container or a script: `docker run … vllm/vllm-openai`.
        engines = (engine_from_command((word,)) for word in words)
        found = next((engine for engine in engines if engine is not None and engine.knobs), found)
    return found or GENERIC


def tune_digest(tune: TuneFile) -> str:
    """A digest of everything but the flags: flags can be added to a tune without repeating what is finished.

    The objective of an automatic tune decides what is measured; its budget and knobs do not.
    """
    auto = tune.auto and AutoSearch(slo=tune.auto.slo)
    objective = tune.objective if auto else "out_tps"
    # Whether this user may set power limits does not decide which tune it is.
    knobs = tuple(
        msgspec.structs.replace(knob, values=(), watts=()) for knob in tune.knob if not (auto and knob.kind == "power")
    )
    rest = msgspec.to_builtins(
        msgspec.structs.replace(
            tune,
            grid={},
            configurations=(),
            knob=knobs,
            name="",
            seed=0,
            objective=objective,
            finalists=2,
            restarts=0,
            auto=auto,
        ),
        str_keys=True,
    )
    del rest["pass_env"]  # the names of keys do not change what is measured
    if not knobs:
        del rest["knob"]
    if auto is None:
        del rest["auto"]
    return short_digest(msgspec.json.encode(rest, order="sorted").decode())


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def tune_rounds(tune: TuneFile) -> tuple[TuneRound, ...]:
    """First choose the finalists, by one start of each configuration or by successive halving; then restart them.

    No choice is needed if all are finalists, as they are with one server. The last round of a halving has all the
    requests. An automatic tune has one round that chooses, and one of all starts that are ranked.
    """
    if tune.auto is not None:
        return TuneRound(number=0, configurations=1), TuneRound(number=1, configurations=tune.finalists, restart=1)
    count = len(all_configurations(tune))
    restarts = tune.restarts if count > 1 else 0
    finalists = count if has_one_server(tune) else tune.finalists
    rounds = []
    if tune.halving is not None:
        factor, counts = tune.halving.factor, [count]
        while len(counts) < tune.halving.rounds and counts[-1] > 1:
            counts.append(ceil(count / factor ** len(counts)))
        last = len(counts) - 1
        rounds = [TuneRound(number=k, configurations=left, share=factor ** (k - last)) for k, left in enumerate(counts)]
    elif not restarts or count > finalists:
        rounds = [TuneRound(number=0, configurations=count)]
    chosen = len(rounds)
    return tuple(rounds) + tuple(
        TuneRound(number=chosen + k, configurations=min(count, finalists), restart=k + 1) for k in range(restarts)
    )


def first_restart(tune: TuneFile) -> int:
    """The number of the first round whose starts are ranked."""
    rounds = tune_rounds(tune)
    return next((round_.number for round_ in rounds if round_.restart), len(rounds))


def round_title(tune: TuneFile, number: int) -> str:
    """Name a round, `round 2 of 3` or `restart 1 of 3`; empty for the only one before the restarts."""
    rounds, first = tune_rounds(tune), first_restart(tune)
    if number < first:
        return f"round {number + 1} of {first}" if first > 1 else ""
    word = "pass" if has_one_server(tune) else "restart" if first else "start"
    return f"{word} {number - first + 1} of {len(rounds) - first}"


def scale_load(load: Load, share: float) -> Load:
    """The share of the requests or of the time of a run that a round has.

    Of a closed loop at least two requests per stream, unless the run has fewer: C of them end after C is left.
    """
    if not isinstance(load, LimitedLoad) or share == 1.0:
        return load
    if load.duration_s is not None:
        return msgspec.structs.replace(load, duration=f"{load.duration_s * share:g}s")
    if isinstance(load, Sessions) and load.requests is None:
        return load
    each = load.per_run
    streams = max(load.levels) if isinstance(load, Closed) and not each.per_stream else 1
    least = 2 * streams if isinstance(load, Closed) else 1
    count = max(min(least, each.count), round(each.count * share))
    return msgspec.structs.replace(load, requests=f"{count}C" if each.per_stream else count)


def starts_in_file_order(tune: TuneFile, starts: Sequence[Start]) -> list[Start]:
    """The results of configurations that the file contains, in its order; all of an automatic tune, as they were."""
    if tune.auto is not None:
        return list(starts)
    position = {configuration_key(flags): number for number, flags in enumerate(all_configurations(tune))}
    known = [start for start in starts if configuration_key(start.flags) in position]
    return sorted(known, key=lambda start: (start.round, position[configuration_key(start.flags)]))


def pending_configurations(tune: TuneFile, starts: Sequence[Start]) -> tuple[TuneRound, list[Flags]]:
    """The current round, and the configurations that are still to be measured in it; none if all rounds are done.

    Their order is random, so that a machine that warms up favours no flag; the same seed gives the same order. Those
    that share a start of their server follow each other.
    """
    for round_ in tune_rounds(tune):
        order = sorted(configurations_in_round(tune, starts, round_.number), key=configuration_key)
        Random(f"{tune.seed}/{round_.number}").shuffle(order)
        if tune.knob:
            servers = [configuration_key(server_flags(tune, flags)) for flags in order]
            order = [order[index] for index in sorted(range(len(order)), key=lambda i: servers.index(servers[i]))]
        done = {configuration_key(start.flags) for start in starts if start.round == round_.number}
        if left := [flags for flags in order if configuration_key(flags) not in done]:
            break
    return round_, left


def configurations_in_round(tune: TuneFile, starts: Sequence[Start], number: int) -> Sequence[Flags]:
    """All configurations, or the best of the rounds before; failed ones do not advance. One alone is not restarted."""
    rounds, first = tune_rounds(tune), first_restart(tune)
    if number >= len(rounds):  # the grid was reduced after the tune had started
        return ()
    known = starts_in_file_order(tune, starts)
    if number < first or not first:
        before = [start for start in known if start.round == number - 1]
        chosen = all_configurations(tune) if not number or not first else _best(before, tune, rounds[number])
    else:
        chosen = _best(latest([start for start in known if start.round < first]), tune, rounds[number])
    if not rounds[number].restart:
        return chosen
    failed = {
        configuration_key(start.flags) for start in known if first <= start.round < number and start.state == "broken"
    }
    left = [flags for flags in chosen if configuration_key(flags) not in failed]
    return left if len(left) > 1 or not number else ()


def _best(starts: Sequence[Start], tune: TuneFile, round_: TuneRound) -> list[Flags]:
    done = [start for start in starts if start.state == "done"]
    return [start.flags for start in rank(done, tune.objective)][: round_.configurations]


class ConfigurationStatus(Stored, frozen=True, kw_only=True):
    """One configuration; `row` is its latest result, from this round or an earlier one."""

    flags: Flags
    state: Literal["waiting", "starting", "warming up", "running", "stopping", "done", "broken"]
    round: int
    row: Start | None = None

    @property
    def is_active(self) -> bool:
        return self.state not in ("waiting", "done", "broken")


def configuration_statuses(tune: Tune) -> list[ConfigurationStatus]:
    """All configurations, in the order of the file."""
    definition, starts = tune.definition, tune.starts
    active = tune.status if not tune.status.ended and tune.status.flags is not None else None
    number = active.round if active else max((start.round for start in starts), default=0)
    results = {configuration_key(start.flags): start for start in latest(starts)}
    if definition.auto is None:
        listed = list(all_configurations(definition))
        in_round = set(map(configuration_key, configurations_in_round(definition, starts, number)))
    else:
        listed, in_round = [start.flags for start in results.values()], set[str]()
        listed += [active.flags] if active and active.flags is not None and active.flags not in listed else []
    statuses = []
    for flags in listed:
        key = configuration_key(flags)
        row = results.get(key)
        status = ConfigurationStatus(
            flags=flags,
            state="waiting" if row is None or (row.round < number and key in in_round) else row.state,
            round=number if key in in_round else row.round if row else 0,
            row=row,
        )
        if active and active.flags is not None and key == configuration_key(active.flags):
            status = msgspec.structs.replace(status, state=active.phase)
        statuses.append(status)
    return statuses


def latest(starts: Sequence[Start]) -> list[Start]:
    """Each configuration once, with the result of its last round."""
    found: dict[str, Start] = {}
    for start in sorted(starts, key=lambda start: start.round):
        found[configuration_key(start.flags)] = start
    return list(found.values())


def rank(rows: Sequence[StartT], objective: Objective) -> list[StartT]:
    """Best first; results of later rounds, with more requests, come before earlier ones; failed ones last."""

    def sort_key(row: Start) -> tuple[bool, int, bool, float]:
        value: float | None = getattr(row, objective)
        sign = -1.0 if objective in ("out_tps", "agents") else 1.0
        return row.state != "done", -row.round, value is None, sign * (value or 0.0)

    return sorted(rows, key=sort_key)


def split_command(text: str, key: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"cannot be split into arguments: {error}", key=key) from None
