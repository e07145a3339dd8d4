"""The rdma probe: perftest between pairs of NICs."""
