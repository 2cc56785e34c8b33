"""The conductor process, one for each session: plan, workers, journal, and a socket for faces."""
