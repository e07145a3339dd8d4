"""Results to text; knows result types only."""
