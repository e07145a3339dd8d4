"""An inventory to begin with: of a kind of hosts, or of hosts that were looked at."""
