"""The nccl probe: collectives over all hosts, by torch or by nccl-tests."""
