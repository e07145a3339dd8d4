"""What a link or a collective should reach: pure arithmetic, standard library only."""
