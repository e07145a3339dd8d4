"""Trials of tunings: what to try, how to judge it, and how to propose what won."""
