"""The node's half of a job: its folder, its supervisor, its heartbeat. Python 3.8+, standard library only."""
