"""The version of plans that nodectl writes and its programs on nodes read."""

PLAN_VERSION = 1
