"""Chaos: every event that may hit a job, in every phase of its life, against what docs/jobs.md promises."""
