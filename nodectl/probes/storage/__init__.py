"""The storage probe: fio, or plain writes, in a folder of each host."""
