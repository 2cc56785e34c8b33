"""Say in a few words what a session measured, on what and with what, for cards and posts."""

from __future__ import annotations

from typing import NamedTuple

from swarmtui.analysis.compare.differences import flags_text, known_flags, quantisation_of
from swarmtui.analysis.machine.energy import count_names
from swarmtui.model.endpoint import api_text
from swarmtui.model.session import Summary
from swarmtui.text import count_noun


class Environment(NamedTuple):
    """One text for each part, without names; empty if it is not known."""

    hardware: str
    engine: str
    model: str
    flags: str
    workload: str
    plan: str
    tool: str
    date: str

    def rows(self, more: str = "", flags: str = "not known") -> tuple[tuple[str, str], ...]:
        """Return what was measured, by name and text; `more` is added to the workload, `flags` said without any."""
        return (
            ("Hardware", self.hardware),
            ("Engine", self.engine),
            ("Model", self.model),
            ("Flags", self.flags or flags),
            ("Workload", ", ".join(filter(None, (self.workload, self.plan))) + more),
        )


def environment(summary: Summary) -> Environment:
    session, plan = summary.session, summary.session.plan
    server = summary.servers[0] if summary.servers else None
    endpoint = session.endpoints[0] if session.endpoints else None
    engine = " ".join(filter(None, (server.engine, server.version))) if server else endpoint.engine if endpoint else ""
    slots = count_noun(server.slots, "slot") if server and server.slots else ""
    replicas = f"{len(session.endpoints)} endpoints" if len(session.endpoints) > 1 else ""
    quantisation = quantisation_of(summary)
    model = endpoint.model if endpoint else ""
    limit = f"answers of at most {plan.max_tokens} tokens" if plan.max_tokens else ""
    runs = count_noun(plan.load.runs, "run") if plan.load.runs > 1 else ""
    return Environment(
        hardware=count_names(summary.gpus) or "GPU not known",
        engine=", ".join(filter(None, (engine, slots, replicas))),
        model=f"{model} ({quantisation})" if quantisation and quantisation.lower() not in model.lower() else model,
        flags=flags_text({name: value for name, value in (known_flags(summary) or {}).items() if name}),
        workload=", ".join(filter(None, (session.workload, api_text(endpoint) if endpoint else "", limit))),
        plan=", ".join(filter(None, (f"SLO {plan.slo}" if plan.slo else "", runs))),
        tool=session.tags.get("imported") or f"swarmtui {session.client.version}",
        date=session.created[:10],
    )
