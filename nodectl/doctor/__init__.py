"""Before the first command: what the operator's machine and the way to the hosts lack, and an inventory to begin with."""
