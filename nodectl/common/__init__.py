"""What every package may use and none owns: numbers and units, paths, files, the order and folding of names."""
