"""The way back: what stood on a node before nodectl changed it, recorded in one store and put back by one code."""
