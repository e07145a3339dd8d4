"""templates/ as Ansible renders them, without a run of Ansible; test_templates.py holds the two together."""

from nodectl.export.templates import render

__all__ = ["render"]
