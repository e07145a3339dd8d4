"""Parsers of the outputs of nvidia-smi, DCGM and nvbandwidth."""
