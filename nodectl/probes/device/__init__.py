"""Probes of GPUs, and of processors in their place."""
