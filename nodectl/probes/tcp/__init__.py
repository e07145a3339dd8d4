"""The tcp probe: iperf3 between pairs."""
