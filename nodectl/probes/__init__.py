"""What hosts do under load: one file a probe."""
