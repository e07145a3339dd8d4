"""Tools that every package may use and none owns: numbers and units, paths, files, order and folding of names."""
