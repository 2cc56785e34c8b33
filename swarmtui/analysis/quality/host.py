"""Judge whether other programs on the host, or other machines on its hypervisor, delayed the client or a server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from swarmtui.analysis.quality import quality_limits as limits
from swarmtui.analysis.quality.quality_limits import STATES, Grade, QualityState
from swarmtui.model.telemetry import HostUse, Program, QualityFacts
from swarmtui.numbers import short_percent
from swarmtui.text import count_noun

HOST_LIMIT = (
    f"waiting ≤ {short_percent(limits.CPU_PRESSURE.note)} of the time, "
    f"or client and server ≤ {limits.CPU_WAIT.note:.2f} s, "
    f"or other programs ≤ {short_percent(limits.OTHER_PROGRAMS.ok)} of the CPU time"
)


def grade_host(facts: QualityFacts) -> Grade | None:
    """Grade how long tasks waited for a CPU: a doubt only if other programs used the CPUs, as far as that is known."""
    use = facts.host or HostUse()
    states: list[QualityState] = []
    values: list[str] = []
    above: list[str] = []
    if use.pressure is not None:
        states.append(limits.CPU_PRESSURE.grade(use.pressure))
        values.append(f"tasks waited for a CPU in {short_percent(use.pressure, 2)} of the time")
        above.append(f"{short_percent(limits.CPU_PRESSURE.note)} of the time")
    if use.waited is not None:
        # A sum over processes, which can exceed the time.
        states.append(limits.CPU_WAIT.grade(use.waited))
        waits = "" if values else " waited for a CPU"
        values.append(f"client and server together{waits} {use.waited:.2f} s in each second")
        above.append(f"{limits.CPU_WAIT.note:.2f} s in each second")
    if not states and not facts.no_cpu:
        return None
    quiet = use.others is not None and limits.OTHER_PROGRAMS.grade(use.others) == "ok"
    if use.others is not None:
        values.append(f"other programs used {short_percent(use.others, 2)} of the CPU time")
    if facts.no_cpu:
        values.append(f"all streams were silent {count_noun(facts.no_cpu, 'time')} meanwhile")
    # Other tasks may wait for what is not shared with ours, such as the CPU limit of a container.
    state = "doubtful" if facts.no_cpu else min(states, key=STATES.index)
    value, good_sentence = ", ".join(values), "there was enough CPU time for the client, and for a server on this host"
    if state == "doubtful" and quiet and not facts.no_cpu:
        sentence = (
            "a remark only: no other program was busy; server and client themselves used the CPUs, and waited for each "
            "other, which is the speed of this host"
        )
        return Grade("note", value, good_sentence, sentence)
    if state == "doubtful":
        sentence = f"the client, and a server on the same host, were delayed: {busy_text(use.programs)}"
        return Grade(state, value, good_sentence, sentence, programs=use.programs)
    who = "tasks" if use.waited is None else "client and server"
    return Grade(state, value, good_sentence, f"{who} waited only a little for a CPU", " and ".join(above))


def busy_text(programs: Sequence[Program], *, brief: bool = False) -> str:
    """`the host was busy with other programs: python3 train.py (pid 1234, 0.8 cores) and cc1 (0.3 cores)`

    A `brief` text has no process ids: `the host was busy with python3 train.py (0.8 cores) and cc1 (0.3 cores)`
    """
    if not programs:
        return "the host was busy"
    if brief:
        programs = [msgspec.structs.replace(program, pid=None) for program in programs]
    *others, last = map(program_text, programs)
    if brief:
        return f"the host was busy with {' and '.join(filter(None, (', '.join(others), last)))}"
    named = f"other programs: {', '.join(others)} and {last}" if others else f"another program: {last}"
    return f"the host was busy with {named}"


def program_text(program: Program) -> str:
    """`cc1 (pid 71, 0.8 cores)`: every sentence names programs like this, so that they can be found and left out."""
    pid = "" if program.pid is None else f"pid {program.pid}, "
    return f"{program.name} ({pid}{program.cores:.1f} cores)"


def grade_steal(facts: QualityFacts) -> Grade | None:
    """Grade which share of the CPU time the hypervisor gave to other machines."""
    steal = facts.host.steal if facts.host is not None else None
    if steal is None:
        return None
    state = limits.STEAL.grade(steal)
    bad_sentence = "this is a virtual machine, and its host was busy: all processes here were held back"
    if state == "note":
        bad_sentence = "other virtual machines took a little CPU time"
    good_sentence = "other virtual machines took next to no CPU time"
    limit = f"{short_percent(limits.STEAL.note)} of CPU time"
    return Grade(state, f"{short_percent(steal, 2)} of CPU time", good_sentence, bad_sentence, limit)
