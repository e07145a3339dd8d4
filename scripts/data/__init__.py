"""Makers of the files in nodectl/data that hold what others publish, each from a saved copy of the document."""
