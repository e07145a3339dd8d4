"""A job as another launcher takes it: Slurm's batch script, a hostfile, manifests for Kubernetes; texts only."""
