"""The latency probe: round trips between pairs."""
