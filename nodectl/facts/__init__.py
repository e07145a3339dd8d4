"""What a host is: one file a subject, read from a recording's texts."""
