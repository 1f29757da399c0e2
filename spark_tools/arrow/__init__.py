"""Arrow columns and batches: records to rows and rows to messages."""
