"""Message trace: records, hooks, dispatch."""
