"""Start the session process; the first worker is started before anything else, so that both import at the same time."""

import gc
import signal

from swarmtui.processes.spawn import start_worker


def run() -> None:
    # Ctrl-C and a hang-up concern the client: the run continues, and so do the workers, which inherit this setting.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    first_worker = start_worker()
    gc.disable()  # imports leave no garbage: collections would only take time
    from swarmtui.session_process.main import main

    gc.freeze()
    gc.enable()
    main(first_worker)


run()
