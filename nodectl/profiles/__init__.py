"""What should be: hardware, stack and tuning profiles, and the one place where they are merged and validated."""

KINDS = ("hardware", "stack", "tuning")
