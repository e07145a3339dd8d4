"""A job for another launcher, as text: Slurm's batch script, a hostfile."""
