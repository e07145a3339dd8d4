"""Checks of the kernel: its settings, its state, its log and its PCIe devices."""
