"""Content for a report, gathered from the hosts, from the operator's history, and from saved results."""
