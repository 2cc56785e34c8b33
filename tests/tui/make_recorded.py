"""Makes the sessions that snapshots are taken of: sweeps on the simulator, short answers, so that they stay small.

python -m tests.tui.make_recorded
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from swarmtui.client.client import start
from swarmtui.model.client_protocol import Ended, Subscribe
from swarmtui.model.plan import Plan, Requests
from swarmtui.model.run_request import Order
from swarmtui.model.session import Head, entry_decoder, entry_encoder
from swarmtui.sessions.journal import JOURNAL

RECORDED = Path(__file__).with_name("recorded")


SESSIONS = (("two seats each", "sim:qwen36-27b-2x?speed=2"), ("four seats each", "sim:qwen36-27b-2x?speed=2&seats=4"))


def main() -> None:
    shutil.rmtree(RECORDED, ignore_errors=True)
    for label, endpoint in SESSIONS:
        record(label, endpoint)


def record(label: str, endpoint: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        order = Order(
            endpoints=(endpoint,),
            workload=str(Path(__file__).with_name("recorded.toml")),
            plan=Plan(levels=(1, 2, 4, 8), runs=4, requests=Requests(count=1), warmup=2, seed=7),
            session_root=folder,
            label=label,
            server_flags=f"--max-num-seqs {2 if 'two' in label else 4}",
            keep_text=True,
        )
        client = start(order, Subscribe(hz=1.0))
        while not isinstance(ended := client.next(None), Ended):
            pass
        client.close()
        made = Path(ended.directory)
        target = RECORDED / made.name
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
