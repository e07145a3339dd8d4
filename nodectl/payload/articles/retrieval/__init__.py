"""The retrieval measurement on nodes: the table, what front and shards say to each other, and the front."""
