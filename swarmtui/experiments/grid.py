"""The cells of a tune: which there are, how each is started, in which order, and which go on to the next round."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from itertools import product
from math import ceil
from random import Random

import msgspec

from swarmtui.model.plan import Requests
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.tuning import CellRow, Flags, Objective, TuneFile, Value, is_variable


class Launch(Stored, frozen=True, kw_only=True):
    """How to start a server: words, not a line for a shell; `env` is put over that of the user."""

    words: tuple[str, ...]
    env: dict[str, str]
    url: str
    ready: str
    stop: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.env.items()), shlex.join(self.words)])


class Round(Stored, frozen=True, kw_only=True):
    """So many cells, each with this share of the requests."""

    number: int
    cells: int
    share: float


def cells_of(tune: TuneFile) -> tuple[Flags, ...]:
    """The grid, and behind it the cells that were written down; none twice."""
    grid = [dict(zip(tune.grid, values, strict=True)) for values in product(*tune.grid.values())] if tune.grid else []
    found: dict[str, Flags] = {}
    for flags in (*grid, *tune.cells):
        found.setdefault(key_of(flags), flags)
    return tuple(found.values())


def key_of(flags: Flags) -> str:
    """The same for the same flags, in whatever order they stand."""
    return msgspec.json.encode(flags, order="sorted").decode()


def launch_of(tune: TuneFile, flags: Flags, port: int | str, source: str = "") -> Launch:
    words = _filled(_split(tune.command, source, "command"), flags, port)
    env = {name: _fill(value, flags, port) for name, value in tune.env.items()}
    for name, value in flags.items():
        if f"{{{name}}}" in tune.command:
            continue
        if is_variable(name):
            if value is not False:
                env[name] = "1" if value is True else str(value)
        elif value is True:
            words.append(name)
        elif value is not False:
            words += [name, str(value)]
    url = _fill(tune.url, flags, port)
    ready = _fill(tune.ready, flags, port)
    return Launch(
        words=tuple(words),
        env=env,
        url=url,
        ready=ready if "://" in ready else url.rstrip("/") + "/" + ready.lstrip("/"),
        stop=tuple(_filled(_split(tune.stop, source, "stop"), flags, port)),
    )


def command_launch(command: str, url: str | None, port: int | str, option: str) -> Launch:
    """A command as `ab` is given it; without an address it must say where {port} goes."""
    if url is None and "{port}" not in command:
        raise BadInput("put {port} where the command names its port, or give the address with --url", key=option)
    address = _fill(url or "http://127.0.0.1:{port}", {}, port)
    words = tuple(_filled(_split(command, "", option), {}, port))
    return Launch(words=words, env={}, url=address, ready=address.rstrip("/") + "/v1/models")


def digest_of(tune: TuneFile) -> str:
    """Of all that a cell's figures hang on, beside its flags: more flags may be added, and finished cells stay."""
    kept = msgspec.structs.replace(tune, grid={}, cells=(), name="", seed=0, objective="out_tps")
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:8]


def shuffled(cells: Sequence[Flags], seed: int, number: int) -> list[Flags]:
    """By chance, so that a machine that grows warm favours no flag; the same seed gives the same order."""
    mixed = sorted(cells, key=key_of)
    Random(f"{seed}/{number}").shuffle(mixed)
    return mixed


def rounds_of(tune: TuneFile) -> tuple[Round, ...]:
    """One round of all, or as many as successive halving has; the last is measured with all requests."""
    count = len(cells_of(tune))
    if tune.halving is None:
        return (Round(number=0, cells=count, share=1.0),)
    factor, made = tune.halving.factor, []
    for number in range(tune.halving.rounds):
        made.append(ceil(count / factor**number))
        if made[-1] == 1:
            break
    last = len(made) - 1
    return tuple(Round(number=k, cells=cells, share=factor ** (k - last)) for k, cells in enumerate(made))


def fewer(requests: Requests, share: float) -> Requests:
    """The part of the requests that a round has; at least one."""
    return Requests(count=max(1, round(requests.count * share)), per_stream=requests.per_stream)


def survivors(rows: Sequence[CellRow], count: int, objective: Objective) -> list[Flags]:
    """The best of a round, by the objective alone; broken ones never."""
    return [row.flags for row in ranked([row for row in rows if row.state == "done"], objective)][:count]


def ranked(rows: Sequence[CellRow], objective: Objective) -> list[CellRow]:
    """Best first; what was measured in a later round, with more requests, stands above; broken ones last."""

    def place(row: CellRow) -> tuple[bool, int, bool, float]:
        value: float | None = getattr(row, objective)
        sign = -1.0 if objective == "out_tps" else 1.0
        return row.state != "done", -row.round, value is None, sign * (value or 0.0)

    return sorted(rows, key=place)


def _split(text: str, source: str, key: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"not a command: {error}", source=source, key=key) from None


def _filled(words: Sequence[str], flags: Flags, port: int | str) -> list[str]:
    return [_fill(word, flags, port) for word in words]


def _fill(text: str, flags: Flags, port: int | str) -> str:
    for name, value in flags.items():
        text = text.replace(f"{{{name}}}", _word(value))
    return text.replace("{port}", str(port))


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
