"""What an address tells of itself."""

import socket


def family(address: str) -> socket.AddressFamily:
    """IPv6 or IPv4."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
