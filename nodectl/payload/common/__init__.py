"""Shared parts of several programs on nodes."""
