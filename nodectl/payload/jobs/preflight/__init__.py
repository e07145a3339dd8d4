"""What a node looks at before a job starts: its network, programs, disks, and the way to the first host."""
