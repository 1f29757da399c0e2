"""The commit log, consume queues, key index and checkpoint: formats, appending, look-up."""
