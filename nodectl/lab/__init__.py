"""A real fleet on one machine: own network, file system, process tree and sshd a host."""
