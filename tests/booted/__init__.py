"""Real booted systems for tests: containers with systemd as process 1, and emulated machines with their own kernel."""
