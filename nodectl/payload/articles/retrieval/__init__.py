"""The retrieval measurement on nodes: the table, and the ranks that hold and ask it."""
