"""The switches between hosts: read from several sources as one graph, and judged."""
