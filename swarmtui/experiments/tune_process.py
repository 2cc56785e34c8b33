"""`python -m swarmtui.experiments.tune_process`: a tune in a process of its own: it goes on when its screen ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from swarmtui.experiments.measure import Wish
from swarmtui.experiments.tune import Tuning
from swarmtui.experiments.tune_store import read_present
from swarmtui.model.run_request import Order
from swarmtui.model.schema import BadInput, Stored
from swarmtui.model.tuning import TuneFile

_BEGUN_WITHIN_S = 20.0
_LOOK_S = 0.05


class Errand(Stored, frozen=True, kw_only=True):
    """Travels in a pipe: the order may hold a key."""

    tune: TuneFile
    order: Order
    directory: str
    retry_broken: bool = False


def start_tuner(errand: Errand) -> None:
    """Back when it has begun; what kept it from that is raised. It has no terminal, and a session of its own."""
    directory = Path(errand.directory)
    log = directory / "tune.log"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with log.open("wb") as out:
            log.chmod(0o600)
            tuner = subprocess.Popen(
                [sys.executable, "-P", "-m", "swarmtui.experiments.tune_process"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", source=str(directory)) from None
    assert tuner.stdin is not None
    with tuner.stdin as pipe:
        pipe.write(msgspec.msgpack.encode(errand))
    give_up = time.monotonic() + _BEGUN_WITHIN_S
    while time.monotonic() < give_up and tuner.poll() is None:
        present = read_present(directory)
        if present is not None and present.pid == tuner.pid:
            return
        time.sleep(_LOOK_S)
    if tuner.poll() != 0:
        raise BadInput("the tune did not begin; its words are in this file", source=str(log))


def main() -> int:
    errand = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Errand)

    def say(text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    try:
        tuning = Tuning(errand.tune, errand.order, Path(errand.directory), quiet=True, say=say)
        if errand.retry_broken:
            tuning.retry_broken()
        with Wish().heard() as wish:
            tuning.run(wish)
    except BadInput as error:
        say(f"swarmtui: {error}")
        return 2
    return 4 if wish() else 0


if __name__ == "__main__":
    sys.exit(main())
