"""One launch of a training program over hosts: plan, start, follow, stop."""
