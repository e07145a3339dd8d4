"""Acceptance: which nodes of a fleet are good, and by what evidence; `docs/accept.md`."""
