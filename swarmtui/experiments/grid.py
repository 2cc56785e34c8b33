"""The configurations of a tune: how each is launched, in which order, and which advance to the next round."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from itertools import product
from math import ceil
from random import Random

import msgspec

from swarmtui.model.base import BadInput, Stored
from swarmtui.model.endpoint import check_url
from swarmtui.model.plan import Requests
from swarmtui.model.tuning import Flags, Objective, TuneFile, TuneResult, Value, is_env_variable


class LaunchCommand(Stored, frozen=True, kw_only=True):
    """How to start a server: an argument list, not a shell command; `env` is added to the environment."""

    command: tuple[str, ...]
    env: dict[str, str]
    url: str
    ready: str
    stop: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(
            [
                *(f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in self.env.items()),
                shlex.join(self.command),
            ]
        )


class HalvingRound(Stored, frozen=True, kw_only=True):
    """One round of successive halving: how many configurations, each with which share of the requests."""

    number: int
    configurations: int
    share: float


def all_configurations(tune: TuneFile) -> tuple[Flags, ...]:
    """The product of the grid, then the configurations listed under [[configurations]]; without duplicates."""
    grid = [dict(zip(tune.grid, values, strict=True)) for values in product(*tune.grid.values())] if tune.grid else []
    found: dict[str, Flags] = {}
    for flags in (*grid, *tune.configurations):
        found.setdefault(configuration_key(flags), flags)
    return tuple(found.values())


def configuration_key(flags: Flags) -> str:
    """A key that does not depend on the order of the flags."""
    return msgspec.json.encode(flags, order="sorted").decode()


def launch_command(tune: TuneFile, flags: Flags, port: int | str) -> LaunchCommand:
    arguments = _filled(_split(tune.command, "command"), flags, port)
    env = {name: _fill(value, flags, port) for name, value in tune.env.items()}
    for name, value in flags.items():
        if f"{{{name}}}" in tune.command:
            continue
        if is_env_variable(name):
            if value is not False:
                env[name] = "1" if value is True else str(value)
        elif value is True:
            arguments.append(name)
        elif value is not False:
            arguments += [name, str(value)]
    url = _address(tune.url, flags, port)
    ready = _fill(tune.ready, flags, port)
    return LaunchCommand(
        command=tuple(arguments),
        env=env,
        url=url,
        ready=ready if "://" in ready else _ready(url, ready),
        stop=tuple(_filled(_split(tune.stop, "stop"), flags, port)),
    )


def _address(url: str, flags: Flags, port: int | str) -> str:
    check_url(_fill(url, flags, 1))
    return _fill(url, flags, port)


def _ready(url: str, path: str) -> str:
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}/{path.lstrip('/')}{mark}{query}"


def launch_for_command(command: str, url: str | None, port: int | str, option: str) -> LaunchCommand:
    """Launch a command of `ab`; without a URL it must contain {port}."""
    if url is None and "{port}" not in command:
        raise BadInput("put {port} into the command, or give the address of the server with --url", key=option)
    address = _address(url or "http://127.0.0.1:{port}", {}, port)
    arguments = tuple(_filled(_split(command, option), {}, port))
    return LaunchCommand(command=arguments, env={}, url=address, ready=_ready(address, "v1/models"))


def tune_digest(tune: TuneFile) -> str:
    """A digest of everything but the flags: flags can be added to a tune without repeating what is finished."""
    rest = msgspec.to_builtins(
        msgspec.structs.replace(tune, grid={}, configurations=(), name="", seed=0, objective="out_tps"), str_keys=True
    )
    del rest["pass_env"]  # the names of keys do not change what is measured
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()[:8]


def shuffled(flag_sets: Sequence[Flags], seed: int, number: int) -> list[Flags]:
    """Return a random order, so that a machine that warms up favours no flag; the same seed gives the same order."""
    order = sorted(flag_sets, key=configuration_key)
    Random(f"{seed}/{number}").shuffle(order)
    return order


def halving_rounds(tune: TuneFile) -> tuple[HalvingRound, ...]:
    """A single round, or the rounds of successive halving; the last has all the requests."""
    count = len(all_configurations(tune))
    if tune.halving is None:
        return (HalvingRound(number=0, configurations=count, share=1.0),)
    factor, counts = tune.halving.factor, []
    for number in range(tune.halving.rounds):
        counts.append(ceil(count / factor**number))
        if counts[-1] == 1:
            break
    last = len(counts) - 1
    return tuple(
        HalvingRound(number=k, configurations=left, share=factor ** (k - last)) for k, left in enumerate(counts)
    )


def scale_requests(requests: Requests, share: float) -> Requests:
    """The share of the requests that a round sends; at least one."""
    return Requests(count=max(1, round(requests.count * share)), per_stream=requests.per_stream)


def survivors(rows: Sequence[TuneResult], count: int, objective: Objective) -> list[Flags]:
    """The flags of the best `count` rows of a round; failed ones do not advance."""
    return [row.flags for row in rank([row for row in rows if row.state == "done"], objective)][:count]


def rank(rows: Sequence[TuneResult], objective: Objective) -> list[TuneResult]:
    """Best first; results of later rounds, with more requests, come before earlier ones; failed ones last."""

    def sort_key(row: TuneResult) -> tuple[bool, int, bool, float]:
        value: float | None = getattr(row, objective)
        sign = -1.0 if objective == "out_tps" else 1.0
        return row.state != "done", -row.round, value is None, sign * (value or 0.0)

    return sorted(rows, key=sort_key)


def _split(text: str, key: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"cannot be split into arguments: {error}", key=key) from None


def _filled(arguments: Sequence[str], flags: Flags, port: int | str) -> list[str]:
    return [_fill(argument, flags, port) for argument in arguments]


def _fill(text: str, flags: Flags, port: int | str) -> str:
    for name, value in flags.items():
        text = text.replace(f"{{{name}}}", _format_value(value))
    return text.replace("{port}", str(port))


def _format_value(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
