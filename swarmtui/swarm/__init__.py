"""The worker process: it lays load on endpoints and takes time stamps, and does nothing else."""
