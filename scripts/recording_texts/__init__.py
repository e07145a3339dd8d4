"""The texts of the bundled recordings, one file a subject; `scripts/recordings.py` writes them."""
