"""GPUs (and processors) under load: matrix products, copies, seeded computations; Python 3.8 and torch."""
