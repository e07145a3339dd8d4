"""Hosts armed for a trial: each puts its former values back by itself once nobody renews its lease."""
