"""Native only: properties completed in place."""
