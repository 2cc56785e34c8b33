"""The worker is started first: while our own imports run, so do its."""

import signal

from swarmtui.client.spawn import start_worker


def run() -> None:
    # Ctrl-C and a hang-up are for the face: the run outlives both, and so do the workers, who inherit this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    first_worker = start_worker()
    from swarmtui.session_process.main import main

    main(first_worker)


run()
