"""Parsers of the outputs of InfiniBand tools, perftest and `rdma`."""
