"""Checks of NICs, InfiniBand and listening ports."""
