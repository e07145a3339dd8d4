"""What an RDMA measurement needs on a host: its ports, perftest's programs, and the talk with the other end."""
