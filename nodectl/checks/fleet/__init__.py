"""Checks that compare the hosts of a fleet with one another."""
