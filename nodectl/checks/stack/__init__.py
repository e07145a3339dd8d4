"""Checks of installed versions."""
