"""The operator's machine and the way to the hosts: what is missing, with the command that mends it."""
