"""Hostile and broken outputs for every parser: `python -m tests.fuzz FAMILY`, `make fuzz`."""
