"""Faults of hardware, in what a dressed host's recording says; each module's FAULTS is found by being there."""
