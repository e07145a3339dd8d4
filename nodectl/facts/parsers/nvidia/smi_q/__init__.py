"""`nvidia-smi -q`: one table of its fields, two forms of it (text and XML), and the report."""
