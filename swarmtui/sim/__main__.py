"""`python -m swarmtui.sim [PRESET[?key=value&…]]`: run the simulator, and print its URL when it listens."""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys

from swarmtui.model.base import BadInput
from swarmtui.sim.presets import parse_spec
from swarmtui.sim.server import serve
from swarmtui.text import echo


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m swarmtui.sim", description=__doc__)
    parser.add_argument(
        "preset", nargs="?", default="moe-tp1", help="a preset, with optional settings: moe-tp1?slots=8"
    )
    parser.add_argument("--port", type=int, default=0, help="0 (the default) uses a free port")
    parser.add_argument("--speed", help="run this many times faster than the simulated machine")
    parser.add_argument("--slots", help="requests that one replica runs at once (slots)")
    parser.add_argument("--replicas", help="engines behind one address")
    parser.add_argument("--watch-stdin", action="store_true", help="exit when stdin is closed")
    given = parser.parse_args(arguments)
    added = [f"{key}={getattr(given, key)}" for key in ("speed", "slots", "replicas") if getattr(given, key)]
    separator = ("&" if "?" in given.preset else "?") if added else ""
    try:
        gc.freeze()  # the modules stay: collections, also those of the shutdown, need not visit them
        preset, settings = parse_spec(f"{given.preset}{separator}{'&'.join(added)}")
        asyncio.run(serve(preset, settings, given.port, watch_stdin=given.watch_stdin))
    except BadInput as problem:
        echo(f"swarmtui: {problem}", err=True)
        return 2
    except BrokenPipeError:
        return 0  # whoever waits for the address has ended
    return 0


if __name__ == "__main__":
    sys.exit(main())
