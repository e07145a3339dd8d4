"""Faults that really happen in a host's own namespaces; each module's FAULTS is found by being there."""
