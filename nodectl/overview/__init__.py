"""What a report shows, gathered: from the hosts, from the operator's history, and from saved results."""
