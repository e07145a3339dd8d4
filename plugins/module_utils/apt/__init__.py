"""apt and dpkg on a node: what they hold, what they would do, and how they are called."""
