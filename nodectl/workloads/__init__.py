"""Reference training programs; they run on nodes and import nothing of nodectl."""
