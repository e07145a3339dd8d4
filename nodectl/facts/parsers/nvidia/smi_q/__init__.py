"""`nvidia-smi -q`: one table of its fields, and the report from its two forms (text and XML)."""
