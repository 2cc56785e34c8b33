"""Run a tune: start a server with each configuration, measure it and stop it; finished ones are not repeated."""

from __future__ import annotations

import hashlib

import msgspec

from swarmtui.analysis.compare.differences import option_name
from swarmtui.client.catalogue import is_listening
from swarmtui.experiments.grid import (
    configuration_key,
    launch_command,
    pending_configurations,
    scale_requests,
    starts_in_file_order,
)
from swarmtui.experiments.managed_server import free_port
from swarmtui.experiments.runner import Runner, Trial
from swarmtui.model.base import BadInput
from swarmtui.model.session import Summary
from swarmtui.model.tuning import Start, TuneFile, format_flags
from swarmtui.numbers import significant


class TuneRunner(Runner[TuneFile]):
    """Run one tune; the endpoint, label and server flags of `request` are replaced for each configuration."""

    kind = "tune"

    def retry_failed(self) -> None:
        """Drop the results of failed configurations, so that they are measured again."""
        kept = tuple(start for start in self.experiment.starts if start.state == "done")
        self.experiment = msgspec.structs.replace(self.experiment, starts=kept)

    def remaining(self) -> int:
        """How many configurations of the current round are still to be measured."""
        return len(pending_configurations(self.experiment.definition, self.experiment.starts)[1])

    def next_trial(self) -> Trial | None:
        tune, starts = self.experiment.definition, self.experiment.starts
        round_, left = pending_configurations(tune, starts)
        if not left:
            return None
        flags = left[0]
        launch = launch_command(tune, flags, free_port())
        if is_listening(launch.url):
            # Every further configuration would meet it, or share the machine with it.
            raise BadInput(
                f"another server is already listening on {launch.url}; it was left alone; "
                "stop it, then run the same command again to continue"
            )
        plan, port = self.request.plan, launch.url.rpartition(":")[2].partition("/")[0]
        request = msgspec.structs.replace(
            self.request,
            endpoints=(launch.url,),
            plan=msgspec.structs.replace(
                plan,
                requests=scale_requests(plan.requests, round_.share),
                duration_s=None if plan.duration_s is None else plan.duration_s * round_.share,
            ),
            label=self.request.label or format_flags(flags),
            server_flags=format_flags({option_name(name): value for name, value in flags.items()}),
            gpu_metrics_urls=tuple(address.replace("{port}", port) for address in self.request.gpu_metrics_urls),
        )
        number = sum(start.round == round_.number for start in starts_in_file_order(tune, starts)) + 1
        prefix = f"round {round_.number + 1}, " if tune.halving else ""
        return Trial(
            start=Start(flags=flags, round=round_.number),
            title=f"{prefix}configuration {number}/{round_.configurations}: {format_flags(flags)}",
            log=f"{round_.number}-{hashlib.sha256(configuration_key(flags).encode()).hexdigest()[:8]}.log",
            request=request,
            launch=launch,
            time_limit=tune.cell_within,
        )

    def finished(self, start: Start, summary: Summary | None) -> None:
        self.add(start)
        self.report(result_line(start))


def result_line(row: Start) -> str:
    """`--parallel 4: 123.4 tok/s at C=4, TTFT 0.210 s, ready after 1.2 s`"""
    if row.state == "broken":
        return f"{format_flags(row.flags)}: failed: {row.reason}"
    parts = [f"{significant(row.out_tps)} tok/s at C={row.c}", f"TTFT {significant(row.ttft_s, 3)} s"]
    if row.start_s is not None:
        parts.append(f"ready after {significant(row.start_s, 2)} s")
    if row.errors:
        parts.append(f"{row.errors} errors")
    return f"{format_flags(row.flags)}: {', '.join(parts)}"
