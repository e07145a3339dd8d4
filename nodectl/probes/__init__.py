"""Measurements of hosts under load: one file a probe."""
