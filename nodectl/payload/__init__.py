"""Programs that run on nodes: Python 3.8+, standard library (torch in probe bodies only); answers are frames."""
