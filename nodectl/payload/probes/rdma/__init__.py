"""RDMA measurements on a host: its ports, perftest's programs, and the talk with the other end."""
