"""Nothing of it is called from Python."""
