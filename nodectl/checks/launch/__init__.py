"""Checks before a job starts."""
