"""Where fio's files lie on a host."""
