"""Checks of GPUs, NVLink and their drivers."""
