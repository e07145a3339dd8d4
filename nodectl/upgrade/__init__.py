"""Upgrades of a fleet: the plan, the course from host to host, and what became of each."""
