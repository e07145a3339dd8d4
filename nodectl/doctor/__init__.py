"""Before the first command: what this machine and the way to the hosts lack, and an inventory to begin with."""
