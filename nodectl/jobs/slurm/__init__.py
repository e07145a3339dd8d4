"""Jobs that Slurm runs: handed to its login host, listed, followed and stopped there."""
