"""Native only: ext fields of sends and pulls, decoded in place."""
