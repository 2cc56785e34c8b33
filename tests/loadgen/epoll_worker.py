"""A worker on a system without io_uring."""

from __future__ import annotations

from swarmtui.loadgen import worker

if __name__ == "__main__":
    worker.receive_ring = lambda loop, clock: None
    worker.main()
