"""How a host is reached: SSH, this machine, or a recording. Nothing else in nodectl opens a connection."""
