"""Measurements of the past: kept in the operator's state folder, and compared with new ones."""
