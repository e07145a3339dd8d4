"""Collectives measured on this host: by torch.distributed or by nccl-tests; Python 3.8, torch in two modules only."""
