"""What GPUs (and processors) do under load: matrix products, copies, seeded computations; Python 3.8 and torch."""
