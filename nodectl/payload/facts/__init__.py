"""Programs that the facts of nodectl/facts run on nodes."""
