"""Parsers of the outputs of Linux's own tools, and of iperf3."""
