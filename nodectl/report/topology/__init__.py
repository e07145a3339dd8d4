"""Hosts and fabric as text, JSON, an inventory, and a picture."""
