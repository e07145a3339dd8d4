"""The programs of the articles' measurements: a short training, and retrieval from a table in shards."""
