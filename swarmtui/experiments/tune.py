"""`swarmtui tune`: one cell after another, each with a server of its own; what is finished is never done again."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from swarmtui.cli.render.tuning import row_line
from swarmtui.experiments.grid import Round, cells_of, fewer, key_of, launch_of, rounds_of, shuffled, survivors
from swarmtui.experiments.managed_server import Broken, Server, Stopped, free_port
from swarmtui.experiments.measure import Measured, Wish, end_leftovers, measure
from swarmtui.experiments.tune_status import born, left_to_do, rows_of
from swarmtui.experiments.tune_store import add_row, only_one, read_state, write_present, write_tune
from swarmtui.model import client_protocol as said
from swarmtui.model.plan import parse_seconds
from swarmtui.model.run_request import Order
from swarmtui.model.tuning import CellRow, Flags, Present, TuneFile, TuneState, flags_text, is_variable

_SHOWN = 24
TAG = "tune"


class Tuning:
    """One tune. `order` is how a cell is measured; its endpoint, label, tags and flags are those of each cell."""

    def __init__(self, tune: TuneFile, order: Order, directory: Path, quiet: bool, say: Callable[[str], None]) -> None:
        self._tune, self._order, self._directory = tune, order, directory
        self._quiet, self._say = quiet, say
        self._ready_within_s = parse_seconds(tune.ready_within, "ready_within")
        self._stop_within_s = parse_seconds(tune.stop_within, "stop_within")
        self._cell_within_s = parse_seconds(tune.cell_within, "cell_within")
        self.state = read_state(directory, tune.name)
        self._present = Present(pid=os.getpid(), born=born(os.getpid()), begun=time.time())

    def retry_broken(self) -> None:
        """Forgets what broke, so that it is measured again."""
        kept = tuple(row for row in self.state.rows if row.state == "done")
        self.state = msgspec.structs.replace(self.state, rows=kept)

    def run(self, wish: Wish) -> TuneState:
        """Until all rounds are done, or somebody does not want to wait any longer."""
        with only_one(self._directory):
            write_tune(self._directory, self._tune)
            self._tell(flags=None)
            ended = "failed"
            try:
                self._rounds(wish)
                ended = "stopped" if wish() else "done"
            finally:
                self._tell(flags=None, ended=ended)
            return self.state

    def _tell(self, **news: object) -> None:
        """Whoever looks on reads it from disk; nobody has to."""
        told = msgspec.structs.replace(self._present, **news)
        if told != self._present or not told.since:
            self._present = msgspec.structs.replace(told, since=time.time())
            write_present(self._directory, self._present)

    def _rounds(self, wish: Wish) -> TuneState:
        if end_leftovers(TAG, self._directory.name):
            self._say("ended a run that an interrupted tune had left behind")
        cells: Sequence[Flags] = cells_of(self._tune)
        for stage in rounds_of(self._tune):
            if stage.number:
                cells = survivors(self._rows(stage.number - 1), stage.cells, self._tune.objective)
            for flags in shuffled(cells, self._tune.seed, stage.number):
                if not self._is_done(flags, stage) and not self._cell(flags, stage, wish):
                    return self.state
        return self.state

    def left(self) -> int:
        """Cells of the present round that are still to be measured."""
        return left_to_do(self._tune, self.rows)

    @property
    def rows(self) -> list[CellRow]:
        return rows_of(self._tune, self.state.rows)

    def _rows(self, number: int) -> list[CellRow]:
        return [row for row in self.rows if row.round == number]

    def _is_done(self, flags: Flags, stage: Round) -> bool:
        return any(key_of(row.flags) == key_of(flags) for row in self._rows(stage.number))

    def _cell(self, flags: Flags, stage: Round, wish: Wish) -> bool:
        """False where it was given up on the way: it is no row then."""
        where = f"{len(self._rows(stage.number)) + 1}/{stage.cells}"
        turn = f"round {stage.number + 1}, " if self._tune.halving else ""
        self._say(f"{turn}cell {where}: {flags_text(flags)}")
        row = self._measured(flags, stage, wish)
        if wish():
            return False
        self.state = add_row(self._directory, self.state, row)
        self._say(row_line(row))
        return True

    def _measured(self, flags: Flags, stage: Round, wish: Wish) -> CellRow:
        launch = launch_of(self._tune, flags, free_port())
        name = hashlib.sha256(key_of(flags).encode()).hexdigest()[:8]
        log = self._directory / f"{stage.number}-{name}.log"
        self._tell(flags=flags, round=stage.number, phase="starting", session="", log=str(log))
        given_up = time.monotonic() + self._cell_within_s
        with Server(
            launch, log, directory=self._tune.directory, stop_within_s=self._stop_within_s, at_once=wish.at_once
        ) as server:
            try:
                server.start()
                start_s = server.wait_until_ready(self._ready_within_s, wish)
            except (Broken, Stopped) as error:
                return _broken(flags, stage, str(error), server.log_tail())

            def over() -> str | None:
                if wish():
                    return "stopped"
                if time.monotonic() > given_up:
                    return f"did not end within {self._tune.cell_within}"
                return server.death()

            self._tell(phase="warming up")
            found = measure(self._order_for(flags, stage, launch.url), self._quiet, wish, over, self._hear)
            self._tell(phase="stopping")
            return _row(flags, stage, found, start_s, server.log_tail())

    def _hear(self, message: said.Message) -> None:
        match message:
            case said.Hello(session=session):
                self._tell(session=session.id)
            case said.Frame(status=status) if status not in ("starting", "warming up"):
                self._tell(phase="running")

    def _order_for(self, flags: Flags, stage: Round, url: str) -> Order:
        plan = self._order.plan
        plan = msgspec.structs.replace(
            plan,
            requests=fewer(plan.requests, stage.share),
            duration_s=None if plan.duration_s is None else plan.duration_s * stage.share,
        )
        port = url.rpartition(":")[2].partition("/")[0]
        return msgspec.structs.replace(
            self._order,
            endpoints=(url,),
            plan=plan,
            label=self._order.label or flags_text(flags),
            tags=self._order.tags | {TAG: self._directory.name},
            server_flags=flags_text({_dashed(name): value for name, value in flags.items()}),
            gpu_metrics_urls=tuple(address.replace("{port}", port) for address in self._order.gpu_metrics_urls),
        )


def commands_text(tune: TuneFile) -> str:
    """Every command that will be run, before any is."""
    cells = cells_of(tune)
    lines = [f"{len(cells)} cells; these commands are run, PORT being a free one:"]
    lines += [f"  {launch_of(tune, flags, 'PORT')}" for flags in cells[:_SHOWN]]
    if len(cells) > _SHOWN:
        lines.append(f"  … and {len(cells) - _SHOWN} more of the same kind")
    if tune.stop:
        lines.append(f"stopped with: {shlex.join(launch_of(tune, cells[0], 'PORT').stop)}")
    if len(stages := rounds_of(tune)) > 1:
        lines.append("rounds: " + ", then ".join(f"{s.cells} cells with {100 * s.share:.3g} % of it" for s in stages))
    return "\n".join(lines)


def _dashed(name: str) -> str:
    """A placeholder of the command, as the flag that it fills in."""
    return name if name.startswith("-") or is_variable(name) else f"--{name}"


def _broken(flags: Flags, stage: Round, reason: str, log: tuple[str, ...], session: str = "") -> CellRow:
    return CellRow(flags=flags, round=stage.number, state="broken", reason=reason, log=log, session=session)


def _row(flags: Flags, stage: Round, found: Measured, start_s: float, log: tuple[str, ...]) -> CellRow:
    summary = found.summary
    session = summary.session.id if summary else ""
    level = max(summary.levels, key=lambda level: level.c, default=None) if summary else None
    if found.problem or level is None or level.lead_tps is None:
        return _broken(flags, stage, found.problem or "nothing was measured", log, session)
    energy = level.energy
    return CellRow(
        flags=flags,
        round=stage.number,
        state="done",
        session=session,
        c=level.c,
        out_tps=level.lead_tps,
        runs=level.lead_by_run,
        ttft_s=level.ttft_s.p50 or level.ttft_s.mean,
        j_per_token=energy.j_per_token if energy else None,
        mean_w=energy.mean_w if energy else None,
        peak_memory=energy.peak_memory if energy else None,
        simulated=energy.simulated if energy else False,
        errors=level.errors,
        start_s=start_s,
    )
