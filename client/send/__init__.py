"""Sending: queue selection, the send task, batches, transactions, request and reply."""
