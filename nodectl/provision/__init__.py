"""Provisioning and its way back: requests, runs of the playbooks, and their events as values."""
