"""Profiles of hardware, stack and tuning: what should be, and the one place where they are merged and validated."""

KINDS = ("hardware", "stack", "tuning")
# the groups of settings that a tuning has
SETTINGS = ("sysctl", "nccl", "limits", "nic", "gpu")
