"""templates/ as Ansible renders them, without a run of Ansible; test_templates.py holds the two together."""

from nodectl.jobs.export.templates import render

__all__ = ["render"]
