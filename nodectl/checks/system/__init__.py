"""Checks of processors, memory, disks, units, Slurm and the clock."""
