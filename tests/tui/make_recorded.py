"""Record the sessions used by the snapshot tests: sweeps on the simulator with short answers.

python -m tests.tui.make_recorded
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from swarmtui.client.session_client import start_session
from swarmtui.model.client_protocol import Ended, Subscribe
from swarmtui.model.journal import Head, entry_decoder, entry_encoder
from swarmtui.model.load import Closed
from swarmtui.model.plan import Plan
from swarmtui.model.run_request import RunRequest
from swarmtui.sessions.journal import JOURNAL

RECORDED = Path(__file__).with_name("recorded")


SESSIONS = (("two slots each", "sim:qwen36-27b-2x?speed=2"), ("four slots each", "sim:qwen36-27b-2x?speed=2&slots=4"))


def main() -> None:
    shutil.rmtree(RECORDED, ignore_errors=True)
    for label, endpoint in SESSIONS:
        record(label, endpoint)


def record(label: str, endpoint: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        request = RunRequest(
            endpoints=(endpoint,),
            workload=str(Path(__file__).with_name("recorded.toml")),
            plan=Plan(load=Closed(levels=(1, 2, 4, 8), runs=4, requests="1C", warmup=2), seed=7),
            session_root=folder,
            label=label,
            server_flags=f"--max-num-seqs {2 if 'two' in label else 4}",
            keep_text=True,
        )
        client = start_session(request, Subscribe(hz=1.0))
        while not isinstance(ended := client.receive(None), Ended):
            pass
        client.close()
        directory = Path(ended.directory)
        target = RECORDED / directory.name
        target.mkdir(parents=True)
        lines = [_without_host(line) for line in (directory / JOURNAL).read_bytes().splitlines()]
        (target / JOURNAL).write_bytes(b"\n".join(lines) + b"\n")


def _without_host(line: bytes) -> bytes:
    """Remove the name and kernel of the recording machine from the head."""
    entry = entry_decoder.decode(line)
    if not isinstance(entry, Head):
        return line
    client = msgspec.structs.replace(entry.session.client, host="host", kernel="")
    session = msgspec.structs.replace(entry.session, client=client)
    return entry_encoder.encode(msgspec.structs.replace(entry, session=session))


if __name__ == "__main__":
    main()
