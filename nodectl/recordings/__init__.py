"""Recordings: gathered from hosts in one round trip, kept in folders, read back, masked."""
