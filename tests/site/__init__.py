"""The documentation's site: built, its links followed, opened in a browser."""
