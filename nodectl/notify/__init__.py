"""Who is told of what happens to jobs and hosts, as nodectl.toml says, and what is told from this machine."""
