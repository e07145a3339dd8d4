"""nodectl: from bare GPU boxes to a training job that is proven fast."""

__version__ = "0.1.0"
