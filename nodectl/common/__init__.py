"""What several packages need and none owns: paths, names of hosts, the order of names, files of the package."""
