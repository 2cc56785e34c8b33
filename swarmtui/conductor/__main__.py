"""The worker is started first: while our own imports run, so do its."""

from swarmtui.conductor.launch import start_worker


def run() -> None:
    first_worker = start_worker()
    from swarmtui.conductor.process import main

    main(first_worker)


run()
