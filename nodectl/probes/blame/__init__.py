"""Which host, path or direction is at fault: a fit over the rounds of pairs, and second looks at suspects."""
