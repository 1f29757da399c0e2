"""Many records at once: from mapped files or answers to Arrow columns and message batches."""
