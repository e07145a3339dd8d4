"""Parsers of the outputs of NCCL, its tests and tools, and of torchrun."""
