"""Native only: items of a batch body in place."""
