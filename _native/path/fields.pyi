"""Native only: ext fields of sends and pulls, read in place."""
