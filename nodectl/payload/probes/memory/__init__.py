"""Memory bandwidth of this host, by one of several means; Python 3.8, torch in one module only."""
