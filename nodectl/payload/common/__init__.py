"""What several programs on nodes need."""
