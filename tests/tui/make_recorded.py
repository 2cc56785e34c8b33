"""Makes the session that snapshots are taken of: a sweep on the simulator, short answers, so that it stays small.

python -m tests.tui.make_recorded
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from swarmtui.conductor.client import start
from swarmtui.model.frame import Ended, Subscribe
from swarmtui.model.order import Order
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.session import Head, entry_decoder, entry_encoder
from swarmtui.sessions.journal import JOURNAL

RECORDED = Path(__file__).with_name("recorded")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(levels=(1, 2, 4, 8), runs=2, requests=Requests(count=2), warmup=2, max_tokens=96, seed=7)
        order = Order(
            endpoints=("sim:qwen36-27b-2x?speed=2",),
            workload="coding",
            plan=plan,
            session_root=folder,
            label="recorded",
            note="two replicas of two seats",
        )
        client = start(order, Subscribe(hz=1.0))
        while not isinstance(ended := client.next(None), Ended):
            pass
        client.close()
        made = Path(ended.directory)
        target = RECORDED / made.name
        shutil.rmtree(RECORDED, ignore_errors=True)
        target.mkdir(parents=True)
        lines = [_without_place(line) for line in (made / JOURNAL).read_bytes().splitlines()]
        (target / JOURNAL).write_bytes(b"\n".join(lines) + b"\n")


def _without_place(line: bytes) -> bytes:
    """The head without the machine on which it was made."""
    entry = entry_decoder.decode(line)
    if not isinstance(entry, Head):
        return line
    client = msgspec.structs.replace(entry.session.client, host="host", kernel="")
    session = msgspec.structs.replace(entry.session, client=client)
    return entry_encoder.encode(msgspec.structs.replace(entry, session=session))


if __name__ == "__main__":
    main()
