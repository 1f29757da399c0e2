"""Many records at once: from mapped files or answers to columns, batches and counts. Knows the store's layout only."""
