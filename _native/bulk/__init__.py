"""Records in bulk: from mapped files or pulled answers to columns, batches and counts. Knows the store's layout only."""
