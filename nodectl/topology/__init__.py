"""How a host and the fabric between hosts are wired, what that limits, and what NCCL should be told of it."""
