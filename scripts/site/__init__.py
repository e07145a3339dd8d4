"""The documentation as a site: what mkdocs asks for while it builds (`hooks.py`), and the pages that code writes."""
