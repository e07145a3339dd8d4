"""Blame for slow pairs of hosts: a fit over the rounds of pairs, and second looks at suspects."""
