"""Message trace: records, hooks, dispatch.

- `attach_producer`: the trace of a running producer, if it is enabled
- `dispatcher`: collects trace records and sends them to the trace topic in the background
- `hooks`: the hooks of producers and consumers that make trace records
- `records`: trace records, encoded and decoded as by Apache's clients
"""
