"""Measurements of the past: kept in the operator's state folder, compared with, and watched for drift."""
